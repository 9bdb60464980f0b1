#pragma once
// How this process takes part in a run: alone, or as one rank of many.

#include <memory>
#include <string>

#include "collectives/communicator.h"

namespace lockstep {

class Session {
 public:
  virtual ~Session() = default;
  virtual Communicator& communicator() = 0;
  // Ranks on this host.
  virtual int local_ranks() const = 0;
  // "Open MPI v4.1.4", or empty when alone.
  virtual std::string library() const = 0;
  // Ends all ranks with this exit code, now. Does not return.
  [[noreturn]] virtual void abort(int code) = 0;
};

// Joins the run if a launcher (mpirun, mpiexec, srun) started this process, else makes a run of
// one. Throws ConfigError where a launcher started several processes that cannot find each other.
std::unique_ptr<Session> join_run();

}  // namespace lockstep
