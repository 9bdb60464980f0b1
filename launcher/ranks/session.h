#pragma once
// How this process takes part in a run: alone, or as one rank of many.

#include <memory>
#include <optional>
#include <string>

#include "collectives/communicator.h"
#include "collectives/mpi/mpi_network.h"
#include "collectives/tcp/options.h"
#include "runtime/base/error.h"

namespace lockstep {

class Session {
 public:
  virtual ~Session() = default;
  virtual Communicator& communicator() = 0;
  // This rank's number among those on this host.
  virtual int local_rank() const = 0;
  // Ranks on this host.
  virtual int local_ranks() const = 0;
  // What carries the ranks' messages: "Open MPI v4.1.4", "TCP, rank 0 at node1:29500", or empty
  // when alone.
  virtual std::string library() const = 0;
  // What MPI has found for itself between hosts.
  virtual MpiNetwork mpi_network() const { return MpiNetwork::kUnknown; }
  // The networks between hosts that the launcher was told to use, as in meeting_here(); empty: any.
  virtual std::string networks() const { return ""; }
  // Ranks that MPI started meet over TCP too, within these limits, the same on all ranks, and
  // communicator() is over TCP from now on; what it was before stays. All ranks together; throws
  // the same AgreedError on all of them. Only where communicator() is MPI's.
  virtual void move_to_tcp(const TimeLimits&) {
    LOCKSTEP_CHECK(false, "the ranks were not started by MPI");
  }
  // After a CommError, of which ranks on other hosts learn: returns once it is for this rank to
  // tell the user. Does not return where another one does and the launcher then ends this rank.
  virtual void await_turn_to_tell(const std::string& /*error*/) {}
  // Ends all ranks with this exit code, now. Does not return. Over TCP the others say why this one
  // did.
  [[noreturn]] virtual void abort(int code, const std::string& why) = 0;
};

// The exit code of the rank that `error`, by which the others learn of its end, speaks of; nothing
// where it did not tell, as one that died.
std::optional<ExitCode> exit_code_told(const std::string& error);

// Joins the run that this process belongs to, if there is one, else makes a run of one:
//   started by an MPI launcher (mpirun, mpiexec, srun --mpi): over MPI;
//   RANK and WORLD_SIZE, or a Slurm step, with a meeting point in the environment: over TCP
//     (collectives/tcp/options.h has the variables).
// Throws ConfigError where a launcher started several processes that cannot find each other or a
// variable has a bad value, CommError where the others do not come.
std::unique_ptr<Session> join_run();

}  // namespace lockstep
