#pragma once
// The file in which rank 0 says where it listens.
//
// It is there only while ranks are on their way: rank 0 writes it whole (a new file renamed into
// place) and removes it once all have come. A file that a run left which ended before that leads
// nowhere or to another program: readers try it, are not answered with its nonce, and read it again
// until rank 0 of their own run has replaced it.

#include <cstdint>
#include <optional>
#include <string>

#include "collectives/tcp/meeting.h"

namespace lockstep {

// Throws ConfigError where the file cannot be written.
void publish_meeting(const std::string& path, const Meeting& meeting);

// What the file says; nothing where there is no file, or no Lockstep wrote it.
std::optional<Meeting> read_meeting(const std::string& path);

// Removes the file if it is still the one with this nonce.
void remove_meeting(const std::string& path, uint64_t nonce);

}  // namespace lockstep
