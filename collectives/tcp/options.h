#pragma once
// The rank of this process and the address of the rendezvous, from the environment.

#include <functional>
#include <optional>
#include <string>

#include "collectives/tcp/rendezvous_info.h"
#include "collectives/tcp/token.h"

namespace lockstep::collectives {

// getenv, or a test's replacement; returns null for a variable that is not set.
using Environment = std::function<const char*(const char*)>;

struct TimeLimits {
  double rendezvous_s = 300;  // LOCKSTEP_RENDEZVOUS_TIMEOUT_S
  double operation_s = 1800;  // LOCKSTEP_COMM_TIMEOUT_S, counted from the last byte moved
};

struct TcpOptions {
  int rank = 0;
  int size = 1;
  int local_rank = -1;  // among the ranks of this host; -1: unknown
  int local_size = -1;  // ranks of this host; -1: unknown
  // The rendezvous is rank 0's address ...
  std::string address;
  int port = 0;
  // ... or a file, on a file system that all ranks share, in which rank 0 publishes its address ...
  std::string file;
  // ... or what rank 0, which listens already, has sent to every rank over another channel.
  std::optional<RendezvousInfo> info;
  // For rank 0 with `info`: the networks by which others may reach it (local_rendezvous_info());
  // empty: any.
  std::string networks;
  // Identifies the run; ranks of another run are rejected. May be empty.
  std::string run;
  // Ranks authenticate each other by it; if it is not set, anybody can join.
  Token token;
  // Lockstep's version, which must be the same on all ranks.
  std::string version;
  TimeLimits limits;
};

// Reads the time limits from the environment. Throws ConfigError.
void read_time_limits(const Environment& environment, TimeLimits& limits);

// Reads the options, without `version`, from the environment. Returns nullopt if it does not
// describe a run of several processes. Variables:
//   RANK and WORLD_SIZE (WORLD_SIZE=1 may stand alone) and optionally LOCAL_RANK, LOCAL_WORLD_SIZE;
//     otherwise Slurm's SLURM_PROCID, SLURM_STEP_NUM_TASKS (or SLURM_NTASKS) and SLURM_LOCALID, in
//     a step (SLURM_STEP_ID) and only if one of the next line is set.
//   LOCKSTEP_RENDEZVOUS=file:///path, otherwise MASTER_ADDR and MASTER_PORT.
//   LOCKSTEP_TOKEN, a secret of 16 characters or more, or LOCKSTEP_TOKEN_FILE, a file that has it.
// If torchrun's own store uses MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE), the next port is taken.
// Throws ConfigError with variable, value and what is allowed, also if a variable of the first line
// is set without those that it needs.
std::optional<TcpOptions> tcp_options_from(const Environment& environment);

}  // namespace lockstep::collectives
