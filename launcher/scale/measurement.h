#pragma once
// A measurement of scaling, from the worlds to be run to the written report.

#include <string>

#include "launcher/command_line/common_options.h"

namespace lockstep::scale {

// The flags of `scale`.
struct ScaleOptions {
  launcher::CommonOptions common;
  std::string ranks;
  std::string mode = "both";
  int repeats = 3;
  int64_t steps = 60;
  std::string out;
  std::string hostfile;
  std::string mpirun;
  double limit_s = 3600;
  std::string on;  // the hardware of the runs' forecasts
};

// Runs each world size, and writes and prints the report, also if the measurement ended early.
// Throws Interrupted, NumericError if weights differ that must be equal, and the error of a run.
void measure_scaling(const ScaleOptions& options);

}  // namespace lockstep::scale
