#pragma once
// Where rank 0 can be met: what it writes to a file that the ranks share (meeting_file.h), or tells
// them over a channel that they have already.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct Meeting {
  std::vector<std::string> addresses;  // of rank 0's host; the likeliest first
  std::string host;                    // host_identity()
  int port = 0;
  uint64_t nonce = 0;  // a random number of rank 0's process
  std::string run;     // TcpOptions::run
};

// This host's addresses, for ranks on this and on other hosts: the one that the host's name stands
// for, then the others, then the name. `networks`, where not empty, leaves none but those of the
// interfaces ("eth0") and IPv4 networks ("10.0.0.0/24") that it names with commas, as Open MPI's
// btl_tcp_if_include does; there may be none.
Meeting meeting_here(int port,
                     uint64_t nonce,
                     const std::string& run,
                     std::string_view networks = "");

// The host's name alone.
std::string host_of(const Meeting& meeting);

// A number by which this process is told from others; not 0.
uint64_t random_nonce();

// Lines for people and programs.
std::string text_of(const Meeting& meeting);

// Nothing where the text is none of text_of(). A reader on the same host has its own name for it
// first.
std::optional<Meeting> meeting_from(const std::string& text);

}  // namespace lockstep
