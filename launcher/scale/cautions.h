#pragma once
// What makes a report's figures doubtful, in words.

#include <string>
#include <vector>

#include "launcher/scale/runs.h"

namespace lockstep::scale {

// What a busy machine does to the figures; empty on an idle one. `load_before`: of this host, told
// where the runs do not say what other work took.
std::string caution_of_load(const RunSetup& setup,
                            const std::vector<MeasuredRun>& runs,
                            double load_before);

// That a run measured too little time, and how many steps are enough; empty where all measured
// kEnough_s. `config_steps`: the length of the config's training, beyond which no run goes.
std::string caution_of_length(const std::vector<MeasuredRun>& runs, int64_t config_steps);

// Of a measurement that ended early: how many runs of each world were made, and what ended it.
std::string what_is_missing(const std::vector<MeasuredRun>& runs,
                            const std::vector<World>& worlds,
                            int repeats,
                            const std::string& reason);

}  // namespace lockstep::scale
