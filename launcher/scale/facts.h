#pragma once
// What a report says of its runs besides their times.

#include <string>
#include <vector>

#include "launcher/common_options.h"
#include "launcher/scale/report_text.h"
#include "runtime/run/assembly.h"

namespace lockstep::scale {

// What decides a run's speed and bits: the model, the settings of its exchanges, and each --set.
// `config`: as written, whose assembly has chosen what it leaves open.
std::vector<Fact> facts_of_config(const CommonOptions& options,
                                  const RunConfig& config,
                                  const Assembly& assembly);

// What the runs found out about the machine. `runs` is not empty.
std::vector<Fact> facts_of_runs(const RunSetup& setup,
                                int repeats,
                                const std::vector<MeasuredRun>& runs);

}  // namespace lockstep::scale
