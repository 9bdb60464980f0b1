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
#include <vector>

#include "collectives/tcp/options.h"

namespace lockstep {

struct Meeting {
  std::vector<std::string> addresses;  // of rank 0's host; the likeliest first
  std::string host;                    // host_identity()
  int port = 0;
  uint64_t nonce = 0;  // a random number of rank 0's process
  std::string run;     // TcpOptions::run
};

// This host's addresses, for ranks on this and on other hosts.
Meeting meeting_here(int port, uint64_t nonce, const std::string& run);

// Throws ConfigError where the file cannot be written.
void publish_meeting(const std::string& path, const Meeting& meeting);

// What the file says; nothing where there is no file, or no Lockstep wrote it.
std::optional<Meeting> read_meeting(const std::string& path);

// Removes the file if it is still the one with this nonce.
void remove_meeting(const std::string& path, uint64_t nonce);

}  // namespace lockstep
