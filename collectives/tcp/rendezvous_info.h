#pragma once
// Where rank 0 can be reached. Rank 0 writes it to a file that the ranks share (rendezvous_file.h),
// or sends it over a channel that the ranks have already.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::collectives {

struct RendezvousInfo {
  std::vector<std::string> addresses;  // of rank 0's host; the most likely first
  std::string host;                    // host_identity()
  int port = 0;
  uint64_t nonce = 0;  // random number that identifies rank 0's process
  std::string run;     // TcpOptions::run
};

// This host's addresses, for ranks on this and on other hosts: those to which the host's name
// resolves, then the others, then the name. If `networks` is not empty, only addresses in the
// interfaces ("eth0") and IPv4 networks ("10.0.0.0/24") that it lists, separated by commas, as in
// Open MPI's btl_tcp_if_include; there may be none.
RendezvousInfo local_rendezvous_info(int port,
                                     uint64_t nonce,
                                     const std::string& run,
                                     std::string_view networks = "");

// The addresses to which a name resolves on this host.
std::vector<std::string> addresses_of_name(const std::string& name);

// The host's name without the rest of its identity.
std::string host_of(const RendezvousInfo& info);

// A random number that identifies this process; not 0.
uint64_t random_nonce();

// The text form, readable by people and programs.
std::string text_of(const RendezvousInfo& info);

// Parses text_of(); returns nullopt if the text is something else. On the same host "localhost" is
// put first.
std::optional<RendezvousInfo> parse_rendezvous_info(const std::string& text);

}  // namespace lockstep::collectives
