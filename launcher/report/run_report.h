#pragma once
// The report of a run, alone or beside another one.

#include <string>

#include "launcher/run/run_history.h"

namespace lockstep::report {

// The page. `against`: null, or the run to compare with. Throws CheckpointError if a run has no
// metrics yet or a record of it is damaged.
std::string run_report(const launcher::RunHistory& run, const launcher::RunHistory* against);

}  // namespace lockstep::report
