#pragma once
// How this process takes part in a run: alone, or as one of several ranks.

#include <memory>
#include <optional>
#include <string>

#include "collectives/communicator.h"
#include "collectives/mpi/mpi_network.h"
#include "collectives/tcp/options.h"
#include "runtime/base/error.h"

namespace lockstep::launcher {

class Session {
 public:
  virtual ~Session() = default;
  virtual collectives::Communicator& communicator() = 0;
  // This rank's index among the ranks on this host.
  virtual int local_rank() const = 0;
  // Ranks on this host.
  virtual int local_ranks() const = 0;
  // The library that carries the ranks' messages: "Open MPI v4.1.4", "TCP, rank 0 at node1:29500";
  // empty for a single rank.
  virtual std::string library() const = 0;
  // The error by which this process could not join its run; empty if it did, or runs alone.
  virtual std::string why_apart() const { return ""; }
  // The network that MPI uses between hosts.
  virtual collectives::MpiNetwork mpi_network() const { return collectives::MpiNetwork::kUnknown; }
  // The networks between hosts to which MPI's user has restricted it, in the format of
  // local_rendezvous_info(); empty: any.
  virtual std::string networks() const { return ""; }
  // Connects ranks that MPI started over TCP too, within these limits, which must be the same on
  // all ranks. From then on communicator() is TCP's; the previous one stays valid. Only if
  // communicator() is MPI's. Collective; throws the same AgreedError on all ranks.
  virtual void move_to_tcp(const collectives::TimeLimits&) {
    LOCKSTEP_CHECK(false, "the ranks were not started by MPI");
  }
  // Call it after a CommError. Reports the error to the ranks on other hosts, and returns once it
  // is this rank's turn to report to the user. Does not return if another rank reports and the
  // launcher then ends this one.
  virtual void await_turn_to_report(const std::string& /*error*/) {}
  // Ends all ranks with this exit code, now. Over TCP the other ranks print the reason.
  [[noreturn]] virtual void abort(int code, const std::string& why) = 0;
};

// The exit code in an error by which this rank has learned of another one's end; nullopt if that
// one reported none, for example because it was killed.
std::optional<ExitCode> reported_exit_code(const std::string& error);

// A run of one rank, for commands that examine why this process could not join its own.
std::unique_ptr<Session> session_apart(const std::string& why);

// Joins the run that this process belongs to, if there is one; otherwise makes a run of one rank:
//   started by an MPI launcher (mpirun, mpiexec, srun --mpi): over MPI;
//   RANK and WORLD_SIZE, or a Slurm step, with a rendezvous in the environment: over TCP
//     (collectives/tcp/options.h has the variables).
// Throws ConfigError if a launcher started several processes that cannot find each other or a
// variable has an invalid value, and CommError if other ranks do not join.
std::unique_ptr<Session> join_run();

}  // namespace lockstep::launcher
