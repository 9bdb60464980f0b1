#pragma once
// The flags of `train`, which `launch` reads too.

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/command_line/common_options.h"

namespace lockstep::launcher {

struct TrainOptions {
  CommonOptions common;
  std::string resume = "none";
  std::vector<std::string> allowed_changes;
  int64_t max_steps = -1;
  std::string walltime;
  std::string on;  // the hardware of a forecast; empty: that of a known GPU, otherwise none
};

// Checks values that the command line's grammar does not. Throws ConfigError.
void check_train_options(const TrainOptions& options);

void add_train_options(CommandSpec& command, TrainOptions& options);

// Adds --on, which train and scale have.
void add_on_option(CommandSpec& command, std::string& on);

}  // namespace lockstep::launcher
