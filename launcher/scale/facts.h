#pragma once
// The facts in a report besides the times of its runs, and what makes its figures unreliable.

#include <string>
#include <vector>

#include "launcher/command_line/common_options.h"
#include "launcher/scale/measured_run.h"
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

// A warning about other work on the machine; empty if it was idle. `load_before`, this host's load
// before the runs, is used if the runs do not report how much CPU time other work took.
std::string caution_of_load(const RunSetup& setup,
                            const std::vector<MeasuredRun>& runs,
                            double load_before);

// A warning if a run measured too little time, with the number of steps that is enough; empty if
// all runs measured kEnough_s. `config_steps` is the length of the config's training, which no run
// exceeds.
std::string caution_of_length(const std::vector<MeasuredRun>& runs, int64_t config_steps);

// For a measurement that ended early: how many runs of each world were made, and why it ended.
std::string what_is_missing(const std::vector<MeasuredRun>& runs,
                            const std::vector<World>& worlds,
                            int repeats,
                            const std::string& reason);

}  // namespace lockstep::scale
