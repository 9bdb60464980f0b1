#pragma once
// Two runs beside each other.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/report/page.h"
#include "launcher/run/run_history.h"

namespace lockstep::report {

// How far the losses of two runs are the same, bit for bit.
struct LossComparison {
  int64_t compared = 0;                     // steps that both have
  std::optional<int64_t> last_equal;        // the last step before the first difference
  std::optional<int64_t> first_difference;  // the step
};
LossComparison compare_losses(const launcher::MetricSeries& a, const launcher::MetricSeries& b);

// "the same loss, bit for bit, at all 500 steps that both have", "... up to step 99; they differ
// from step 100 on", "the losses differ from the first step on (1)".
std::string to_text(const LossComparison& comparison);

// A row for each config field that differs: field, first value, second value. Where the run runs
// and where it writes does not count.
std::vector<Row> config_differences(const launcher::RunHistory& a, const launcher::RunHistory& b);

}  // namespace lockstep::report
