#pragma once
// Which rank this process is and where the ranks meet, as the environment says it.

#include <functional>
#include <optional>
#include <string>

#include "collectives/tcp/meeting.h"
#include "collectives/tcp/token.h"

namespace lockstep {

// getenv, or what a test puts in its place: null for a variable that is not set.
using Environment = std::function<const char*(const char*)>;

struct TimeLimits {
  double rendezvous_s = 300;  // LOCKSTEP_RENDEZVOUS_TIMEOUT_S
  double operation_s = 1800;  // LOCKSTEP_COMM_TIMEOUT_S; counts from the last byte moved
};

struct TcpOptions {
  int rank = 0;
  int size = 1;
  int local_rank = -1;  // among the ranks of this host; -1: not said
  int local_size = -1;  // ranks of this host; -1: not said
  // Where rank 0 listens ...
  std::string address;
  int port = 0;
  // ... or the file, on a file system that all ranks share, in which rank 0 says where it listens.
  std::string file;
  // ... or what rank 0, which listens already, has told everyone.
  std::optional<Meeting> meeting;
  // Of rank 0 in that meeting: the networks by which others may reach it (meeting_here()); empty:
  // any.
  std::string networks;
  // Names the run; ranks of another run are turned away. May be empty.
  std::string run;
  // By which ranks know each other; where it is not set anybody may come.
  Token token;
  // Lockstep's version; all ranks must have the same.
  std::string version;
  TimeLimits limits;
};

// Sets the time limits that the environment gives. Throws ConfigError.
void read_time_limits(const Environment& environment, TimeLimits& limits);

// The options, without `version`, that these variables give; nothing where they do not speak of a
// run of several processes:
//   RANK, WORLD_SIZE (where it is 1, alone) and, if set, LOCAL_RANK, LOCAL_WORLD_SIZE; or else
//     Slurm's SLURM_PROCID,
//     SLURM_STEP_NUM_TASKS (or SLURM_NTASKS) and SLURM_LOCALID, in a step (SLURM_STEP_ID) and
//     where a meeting point is given;
//   LOCKSTEP_RENDEZVOUS=file:///path, or else MASTER_ADDR and MASTER_PORT.
//   LOCKSTEP_TOKEN, a secret of 16 characters or more, or LOCKSTEP_TOKEN_FILE, a file that has it.
// Where torchrun's own store holds MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE) it is the next port.
// Throws ConfigError with variable, value and what is allowed, also where a variable of the first
// line stands there without those that it needs.
std::optional<TcpOptions> tcp_options_from(const Environment& environment);

}  // namespace lockstep
