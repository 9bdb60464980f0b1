#pragma once
// The end of a run's summary.

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/train/run_context.h"

namespace lockstep::launcher {

// The number of bad records in the run's data so far: those found when it was opened and those that
// each rank has read, summed over the ranks (several may have read the same one). nullopt if
// data.bad_records is FAIL, which accepts none. Collective.
std::optional<int64_t> count_bad_records(const train::RunContext& parts);

// ", 3 bad records" for the end of a summary; empty if there are none.
std::string words_for(const std::optional<int64_t>& bad_records);

// ", 3 steps skipped" with the reason, for the end of a summary; empty if there are none.
std::string words_for_skipped(int64_t steps, const RunConfig& config);

}  // namespace lockstep::launcher
