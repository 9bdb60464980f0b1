#pragma once
// Sentences about what makes a report's figures unreliable.

#include <string>
#include <vector>

#include "launcher/scale/measured_run.h"

namespace lockstep::scale {

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
