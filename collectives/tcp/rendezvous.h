#pragma once
// How ranks that know only where rank 0 is become a full mesh of connections.
//
//   1. Every rank greets rank 0, which answers at once, and says where it itself can be reached.
//   2. When all have come, rank 0 sends everyone the table of the addresses.
//   3. Every rank connects to the ranks below it and is connected to by those above it.
//   4. Every rank reports to rank 0, and when all have, rank 0 lets them go.
//
// Whatever goes wrong at one rank reaches rank 0, which tells all: each ends with the same line.

#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/tcp/options.h"
#include "collectives/tcp/socket.h"
#include "runtime/base/error.h"

namespace lockstep {

struct Mesh {
  std::vector<Socket> peers;       // by rank; this rank's own is not open
  std::vector<std::string> hosts;  // by rank
  std::string meeting_point;       // for people: "node1:29500"
};

// Rank 0 did not answer this rank, which alone knows where it has looked.
class UnreachableError : public CommError {
 public:
  using CommError::CommError;
};

// Returns when every rank is connected to every other. `listener`: rank 0's, where it listens
// already. Throws CommError: a rank that does not come within options.limits.rendezvous_s, comes
// twice, has another version or another world size, or leaves; a port of rank 0 that is taken.
// ConfigError: a rendezvous file that cannot be written.
Mesh join_mesh(const TcpOptions& options, Socket listener = {});

// The same for ranks that can talk already: over `channel` they learn where rank 0 listens. Throws
// the same AgreedError on all of them.
Mesh join_mesh_over(Communicator& channel, TcpOptions options);

// join_mesh() for rank 0 ...
Mesh receive_ranks(const TcpOptions& options, Socket listener);
// ... and for every other rank.
Mesh visit_rank_0(const TcpOptions& options);

}  // namespace lockstep
