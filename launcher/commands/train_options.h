#pragma once
// The flags of `train`, which `launch` reads too.

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/common_options.h"

namespace lockstep {

struct TrainOptions {
  CommonOptions common;
  std::string resume = "none";
  std::vector<std::string> allowed_changes;
  int64_t max_steps = -1;
  std::string walltime;
};

void add_train_options(CommandSpec& command, TrainOptions& options);

}  // namespace lockstep
