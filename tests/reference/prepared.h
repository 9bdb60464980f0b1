#pragma once
// Prepares a run without check_config(). Precision AUTO is FP32 on every device.

#include <utility>

#include "runtime/run/lanes.h"
#include "runtime/run/prepared_run.h"

namespace lockstep::testing {

inline PreparedRun prepare(RunConfig config,
                           const Topology& placed,
                           RunPurpose purpose,
                           const OpSet& ops,
                           const PrepareOptions& options = {}) {
  if (config.execution.precision == Precision::kAuto) config.execution.precision = Precision::kFp32;
  return prepare_run(
      choose_lanes(open_config(std::move(config))).opened, placed, purpose, ops, options);
}

}  // namespace lockstep::testing
