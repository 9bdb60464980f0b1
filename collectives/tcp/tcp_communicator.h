#pragma once
// A Communicator over TCP between the ranks' hosts, for runs that no MPI launcher started.

#include <memory>
#include <string>

#include "collectives/communicator.h"
#include "collectives/tcp/options.h"

namespace lockstep {

class TcpCommunicator : public Communicator {
 public:
  // "TCP, rank 0 at node1:29500".
  virtual std::string library() const = 0;
  // Tells every rank that this one has failed, and why; their operations under way and to come
  // throw it. Returns soon, also where they do not listen.
  virtual void abort(const std::string& why) = 0;
};

// Meets the other ranks and connects to each (rendezvous.h has what can go wrong). Operations make
// progress while the caller is in one of the communicator's functions. Destroying it waits some
// seconds for the other ranks to end too.
std::unique_ptr<TcpCommunicator> make_tcp_communicator(const TcpOptions& options);

}  // namespace lockstep
