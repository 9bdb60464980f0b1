#include "launcher/report/comparison.h"

#include <fmt/core.h>

#include <bit>

#include "runtime/config/differences.h"

namespace lockstep::report {

LossComparison compare_losses(const launcher::MetricSeries& a, const launcher::MetricSeries& b) {
  LossComparison found;
  for (size_t i = 0, k = 0; i < a.steps.size() && k < b.steps.size();) {
    if (a.steps[i] != b.steps[k]) {
      ++(a.steps[i] < b.steps[k] ? i : k);
      continue;
    }
    ++found.compared;
    // NaN equals NaN here.
    const bool equal = std::bit_cast<uint64_t>(a.values[i]) == std::bit_cast<uint64_t>(b.values[k]);
    if (!found.first_difference) {
      if (equal)
        found.last_equal = a.steps[i];
      else
        found.first_difference = a.steps[i];
    }
    ++i;
    ++k;
  }
  return found;
}

std::string to_text(const LossComparison& comparison) {
  if (comparison.compared == 0) return "No step is in both runs' metrics.jsonl.";
  if (!comparison.first_difference)
    return fmt::format("The same loss, bit for bit, at all {} steps that both runs have.",
                       comparison.compared);
  if (!comparison.last_equal)
    return fmt::format("The losses differ from the first common step on, step {}.",
                       *comparison.first_difference);
  return fmt::format(
      "The same loss, bit for bit, up to step {}. The losses differ from step {} on.",
      *comparison.last_equal,
      *comparison.first_difference);
}

std::vector<Row> config_differences(const launcher::RunHistory& a, const launcher::RunHistory& b) {
  std::vector<Row> rows;
  if (!a.config || !b.config) return rows;
  for (const config::FieldChange& change : config::differences(*a.config, *b.config))
    if (change.path != "output.run_dir") rows.push_back({change.path, change.before, change.now});
  return rows;
}

}  // namespace lockstep::report
