#pragma once
// Reads facts about this host's network.

#include <filesystem>
#include <string>

#include "launcher/doctor/facts.h"

namespace lockstep::doctor {

// The interfaces that are up, without their addresses, and the RDMA ports. For `root` see
// read_host.h.
NetworkFacts read_interfaces(const std::filesystem::path& root = "/");

// The same with the addresses of this host, and the one that other ranks try first. `networks`:
// those to which the user has restricted the run, as for local_rendezvous_info().
NetworkFacts read_network(const std::string& networks);

}  // namespace lockstep::doctor
