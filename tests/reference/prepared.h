#pragma once
// Prepares a run without check_config().

#include <utility>

#include "runtime/run/prepared_run.h"

namespace lockstep::testing {

inline PreparedRun prepare(RunConfig config,
                           const Topology& placed,
                           RunPurpose purpose,
                           const OpSet& ops,
                           const PrepareOptions& options = {}) {
  return prepare_run(open_config(std::move(config)), placed, purpose, ops, options);
}

}  // namespace lockstep::testing
