#pragma once
// Measures this machine and describes it as a hardware file, for `lockstep plan --on FILE`.

#include <string>

#include "runtime/config/hardware.h"

namespace lockstep::launcher {

struct CalibrationOptions {
  std::string name;  // of the hardware
  std::string only;  // probes whose names begin so; empty: all
  std::vector<std::string> types = {"FP32", "BF16"};
};

// Trains the probes (probes.h) as runs of their own, on one thread, on all threads and on two
// ranks, and reads the times of their ops from the runs' timelines; measures peaks, memory and the
// disk of `folder`, which has the files of the runs. Prints its progress. Takes some minutes.
// Throws Interrupted, and an Error if a run fails.
Hardware calibrate(const CalibrationOptions& options, const std::string& folder);

}  // namespace lockstep::launcher
