#pragma once
// A Communicator over TCP between the ranks' hosts.

#include <memory>
#include <string>

#include "collectives/communicator.h"
#include "collectives/tcp/options.h"

namespace lockstep::collectives {

class TcpCommunicator : public Communicator {
 public:
  // "TCP, rank 0 at node1:29500".
  virtual std::string library() const = 0;
  // Reports to every rank that this one has failed with `why`, which the user knows already. Their
  // current and later operations throw it. Returns soon, also if they do not read.
  virtual void abort(const std::string& why) = 0;
  // Reports to every rank a CommError that this rank met while it waited outside the communicator.
  // Errors of the communicator itself have been reported already; for them it does nothing.
  virtual void report_failure(const std::string& error) = 0;
  // After report_failure(): whether another rank reports to the user, either a rank that has done
  // so, or a lower rank that has not ended.
  virtual bool another_rank_reports() const = 0;
};

// Joins the rendezvous and connects to every rank (rendezvous.h lists the errors). Operations make
// progress while the caller is in one of the communicator's functions. The destructor waits some
// seconds for the other ranks to end too.
std::unique_ptr<TcpCommunicator> make_tcp_communicator(const TcpOptions& options);

// The same for ranks that can communicate over `channel`; see join_mesh_over().
std::unique_ptr<TcpCommunicator> make_tcp_communicator_over(Communicator& channel,
                                                            const TcpOptions& options);

}  // namespace lockstep::collectives
