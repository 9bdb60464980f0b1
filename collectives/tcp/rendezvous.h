#pragma once
// The rendezvous: ranks that know only where rank 0 is become a full mesh of connections.
//
//   1. Every rank connects to rank 0, which answers at once, and sends its own address.
//   2. Once all ranks have joined, rank 0 sends everyone the table of the addresses.
//   3. Every rank connects to the lower ranks and accepts connections from the higher ones.
//   4. Every rank reports to rank 0; once all have reported, rank 0 releases them.
//
// A failure at any rank reaches rank 0, which sends it to all: each ends with the same line.

#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/tcp/options.h"
#include "collectives/tcp/socket.h"
#include "runtime/base/error.h"

namespace lockstep::collectives {

struct Mesh {
  std::vector<Socket> peers;       // by rank; this rank's own is not open
  std::vector<std::string> hosts;  // by rank
  std::string rendezvous_point;    // for people: "node1:29500"
};

// Rank 0 did not answer this rank. Only this rank knows which addresses it tried.
class UnreachableError : public CommError {
 public:
  using CommError::CommError;
};

// Returns once every rank is connected to every other. `listener` is rank 0's, if it listens
// already. Throws CommError if a rank does not join within options.limits.rendezvous_s, joins
// twice, has another version or world size, or disconnects, or if rank 0's port is in use. Throws
// ConfigError if a rendezvous file cannot be written.
Mesh join_mesh(const TcpOptions& options, Socket listener = {});

// The same for ranks that can communicate already: over `channel` they learn rank 0's address. All
// throw the same AgreedError.
Mesh join_mesh_over(Communicator& channel, TcpOptions options);

// join_mesh() for rank 0.
Mesh receive_ranks(const TcpOptions& options, Socket listener);
// join_mesh() for every other rank.
Mesh join_as_worker(const TcpOptions& options);

}  // namespace lockstep::collectives
