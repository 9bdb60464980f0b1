#pragma once
// The rendezvous file, in which rank 0 publishes its address.
//
// The file exists only until all ranks have joined. Rank 0 writes it atomically (a new file that is
// renamed) and removes it once all have joined. A file left by a run that ended before that leads
// nowhere or to another program. Readers try it, get no answer with its nonce, and read it again
// until rank 0 of their own run has replaced it.

#include <cstdint>
#include <optional>
#include <string>

#include "collectives/tcp/rendezvous_info.h"

namespace lockstep::collectives {

// Throws ConfigError if the file cannot be written.
void publish_rendezvous_info(const std::string& path, const RendezvousInfo& info);

// Reads the file; nullopt if there is none or Lockstep did not write it.
std::optional<RendezvousInfo> read_rendezvous_info(const std::string& path);

// Removes the file if it still has this nonce.
void remove_rendezvous_file(const std::string& path, uint64_t nonce);

}  // namespace lockstep::collectives
