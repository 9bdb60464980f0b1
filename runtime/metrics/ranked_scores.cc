#include "runtime/metrics/ranked_scores.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "runtime/base/threads.h"

namespace lockstep::metrics {
namespace {

// A run of equal scores.
struct Run {
  int64_t ones = 0, zeros = 0;
};

// Sorts, and calls f for each run, from the largest score.
template <typename F>
void each_run(std::span<ScoredClass> samples, const F& f) {
  std::ranges::sort(samples, std::greater(), &ScoredClass::score);
  for (size_t begin = 0, end = 0; begin < samples.size(); begin = end) {
    Run run;
    for (; end < samples.size() && samples[end].score == samples[begin].score; ++end)
      run.ones += samples[end].is_one;
    run.zeros = static_cast<int64_t>(end - begin) - run.ones;
    f(run);
  }
}

bool has_nan(std::span<const ScoredClass> samples) {
  return std::ranges::any_of(samples, [](const auto& x) { return x.score != x.score; });
}

struct ColumnScores {
  bool has_both = false;  // samples of the class, and others
  double auc = 0, average_precision = 0;
};

ColumnScores scores_of(std::span<ScoredClass> samples) {
  int64_t ones = 0;
  for (const ScoredClass& sample : samples) ones += sample.is_one;
  return {ones > 0 && ones < static_cast<int64_t>(samples.size()),
          area_under_roc(samples),
          average_precision(samples)};
}

}  // namespace

// For each run of equal scores, before which are `ones` ones with larger scores: each of these
// ranks above the run's zeros, and each of the run's ones half above them. Pairs are counted twice,
// so that the count stays an integer.
double area_under_roc(std::span<ScoredClass> samples) {
  if (has_nan(samples)) return std::numeric_limits<double>::quiet_NaN();
  int64_t zeros = 0, ones = 0, pairs = 0;
  each_run(samples, [&](const Run& run) {
    pairs += run.zeros * (2 * ones + run.ones);
    zeros += run.zeros;
    ones += run.ones;
  });
  if (zeros == 0 || ones == 0) return 0.5;
  return static_cast<double>(pairs) / 2 / static_cast<double>(zeros) / static_cast<double>(ones);
}

double average_precision(std::span<ScoredClass> samples) {
  if (has_nan(samples)) return std::numeric_limits<double>::quiet_NaN();
  int64_t above = 0, ones = 0;
  double sum = 0;
  each_run(samples, [&](const Run& run) {
    above += run.ones + run.zeros;
    ones += run.ones;
    sum += static_cast<double>(run.ones) * static_cast<double>(ones) / static_cast<double>(above);
  });
  return ones == 0 ? 0 : sum / static_cast<double>(ones);
}

void RankedScores::finish(TaskMetrics* metrics) {
  if (columns_ == 0) return;
  std::vector<ColumnScores> scores(static_cast<size_t>(columns_));
  parallel_for(columns_, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      scores[static_cast<size_t>(c)] = scores_of({memory_ + c * rows_, static_cast<size_t>(kept_)});
  });
  ColumnScores sum;
  int64_t both = 0;
  for (const ColumnScores& column : scores) {
    // The metrics of a single column are there in any case.
    if (!column.has_both && columns_ > 1) continue;
    ++both;
    sum.auc += column.auc;
    sum.average_precision += column.average_precision;
  }
  (*metrics)[kAuc] = both == 0 ? 0.5 : sum.auc / static_cast<double>(both);
  (*metrics)[kAveragePrecision] = both == 0 ? 0 : sum.average_precision / static_cast<double>(both);
}

}  // namespace lockstep::metrics
