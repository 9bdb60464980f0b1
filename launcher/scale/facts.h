#pragma once
// The facts in a report besides the times of its runs.

#include <string>
#include <vector>

#include "launcher/command_line/common_options.h"
#include "launcher/scale/report_text.h"
#include "runtime/run/prepared_run.h"

namespace lockstep::scale {

// What decides a run's speed and bits: the model, the settings of its exchanges, and each --set.
// `config`: as written; `prepared`: the run of it.
std::vector<Fact> facts_of_config(const launcher::CommonOptions& options,
                                  const RunConfig& config,
                                  const run::PreparedRun& prepared);

// What the runs reported about the machine. `runs` is not empty.
std::vector<Fact> facts_of_runs(const RunSetup& setup,
                                int repeats,
                                const std::vector<MeasuredRun>& runs);

}  // namespace lockstep::scale
