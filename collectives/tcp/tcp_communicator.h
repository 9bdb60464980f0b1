#pragma once
// A Communicator over TCP between the ranks' hosts.

#include <memory>
#include <string>

#include "collectives/communicator.h"
#include "collectives/tcp/options.h"

namespace lockstep {

class TcpCommunicator : public Communicator {
 public:
  // "TCP, rank 0 at node1:29500".
  virtual std::string library() const = 0;
  // Tells every rank that this one has failed, and why, which the user knows already; their
  // operations under way and to come throw it. Returns soon, also where they do not listen.
  virtual void abort(const std::string& why) = 0;
  // Tells every rank of a CommError that this one met while it waited for another outside the
  // communicator. The communicator's own they know: of these it does nothing.
  virtual void tell_failure(const std::string& error) = 0;
  // After that: whether it is another rank's to tell the user: one that has done so, or one below
  // this one that has not ended.
  virtual bool another_tells() const = 0;
};

// Meets the other ranks and connects to each (rendezvous.h has what can go wrong). Operations make
// progress while the caller is in one of the communicator's functions. Destroying it waits some
// seconds for the other ranks to end too.
std::unique_ptr<TcpCommunicator> make_tcp_communicator(const TcpOptions& options);

// The same for ranks that can talk over `channel`; see join_mesh_over().
std::unique_ptr<TcpCommunicator> make_tcp_communicator_over(Communicator& channel,
                                                            const TcpOptions& options);

}  // namespace lockstep
