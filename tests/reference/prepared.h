#pragma once
// Prepares a run without check_config(). Precision AUTO is FP32 on every device.

#include <utility>

#include "runtime/run/lanes.h"
#include "runtime/run/prepared_run.h"

namespace lockstep::testing {

inline run::PreparedRun prepare(RunConfig config,
                                const collectives::Topology& placed,
                                run::RunPurpose purpose,
                                const exec::OpSet& ops,
                                const run::PrepareOptions& options = {}) {
  if (config.execution.precision == Precision::kAuto) config.execution.precision = Precision::kFp32;
  return run::prepare_run(
      run::choose_lanes(run::open_config(std::move(config))).opened, placed, purpose, ops, options);
}

}  // namespace lockstep::testing
