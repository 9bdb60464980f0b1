#pragma once
// The flags of `train`, which `launch` reads too.

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/command_line/common_options.h"

namespace lockstep::launcher {

struct TrainOptions {
  CommonOptions common;
  std::string resume;  // empty: decide_start() decides
  std::vector<std::string> allowed_changes;
  int64_t max_steps = -1;
  std::string walltime;
  std::string on;  // the hardware of a forecast; empty: that of a known GPU, otherwise none
};

// Decides what is not given: in a run folder as CONFIG, the run continues there (--run-dir and
// --resume auto), except with another --run-dir; everywhere else a run is new (--resume none).
// Returns the line for the log, or "". Throws ConfigError if CONFIG is a checkpoint and --resume is
// not given.
std::string decide_start(TrainOptions& options);

// Checks values that the command line's grammar does not. Throws ConfigError.
void check_train_options(const TrainOptions& options);

void add_train_options(CommandSpec& command, TrainOptions& options);

// Adds --on, which train and scale have.
void add_on_option(CommandSpec& command, std::string& on);

}  // namespace lockstep::launcher
