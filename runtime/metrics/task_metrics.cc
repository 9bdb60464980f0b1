#include "runtime/metrics/task_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace lockstep::metrics {
namespace {

struct Name {
  const char* name;
  const char* label;
};
constexpr Name kNames[kTaskMetricCount] = {{"eval_f1", "F1"},
                                           {"eval_matthews", "Matthews"},
                                           {"eval_auc", "AUC"},
                                           {"eval_mean_absolute_error", "mean absolute error"},
                                           {"eval_r_squared", "R squared"},
                                           {"eval_pearson", "Pearson"},
                                           {"eval_spearman", "Spearman"},
                                           {"eval_average_precision", "average precision"},
                                           {"eval_mean_iou", "mean IoU"},
                                           {"eval_word_error_rate", "word error rate"},
                                           {"eval_character_error_rate", "character error rate"},
                                           {"eval_recall_at_1", "recall@1"},
                                           {"eval_recall_at_5", "recall@5"},
                                           {"eval_recall_at_10", "recall@10"}};

}  // namespace

const char* name_of(TaskMetric metric) { return kNames[metric].name; }
const char* short_name_of(TaskMetric metric) { return kNames[metric].name + sizeof("eval_") - 1; }

std::string to_text(const TaskMetrics& metrics) {
  std::string text;
  for (size_t i = 0; i < metrics.size(); ++i) {
    if (metrics[i]) text += fmt::format(", {} {:.4f}", kNames[i].label, *metrics[i]);
  }
  return text;
}

void ClassCounts::clear() {
  std::ranges::fill(counts_, Counts{});
  total_ = 0;
}

void ClassCounts::add(std::span<const Counts> more) {
  for (size_t i = 0; i < counts_.size(); ++i) {
    counts_[i].predicted += more[i].predicted;
    counts_[i].wanted += more[i].wanted;
    counts_[i].right += more[i].right;
    total_ += more[i].wanted;
  }
}

double ClassCounts::f1() const {
  if (counts_.size() == 2) return counts_[1].f1();
  double sum = 0;
  int64_t classes = 0;
  for (const Counts& counts : counts_) {
    if (counts.predicted + counts.wanted == 0) continue;
    sum += counts.f1();
    ++classes;
  }
  return classes == 0 ? 0 : sum / static_cast<double>(classes);
}

double ClassCounts::mean_iou() const {
  double sum = 0;
  int64_t classes = 0;
  for (const Counts& counts : counts_) {
    const int64_t either = counts.predicted + counts.wanted - counts.right;
    if (either == 0) continue;
    sum += static_cast<double>(counts.right) / static_cast<double>(either);
    ++classes;
  }
  return classes == 0 ? 0 : sum / static_cast<double>(classes);
}

double ClassCounts::matthews() const {
  double right = 0, both = 0, predicted = 0, wanted = 0;
  for (const Counts& counts : counts_) {
    const auto p = static_cast<double>(counts.predicted), w = static_cast<double>(counts.wanted);
    right += static_cast<double>(counts.right);
    both += p * w;
    predicted += p * p;
    wanted += w * w;
  }
  const double total = static_cast<double>(total_), square = total * total;
  const double divisor = (square - predicted) * (square - wanted);
  return divisor > 0 ? (right * total - both) / std::sqrt(divisor) : 0;
}

ClassScores ClassCounts::Counts::scores() const {
  const auto share = [this](int64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(right) / static_cast<double>(whole);
  };
  return {share(predicted), share(wanted), f1(), wanted};
}

namespace {

// Accumulates the correlation of one column's predictions x and targets t.
struct Correlation {
  double xx = 0, tt = 0, xt = 0;  // sums of products of deviations from the mean

  void add(double x, double t) {
    xx += x * x;
    tt += t * t;
    xt += x * t;
  }
  double value() const {
    const double divisor = std::sqrt(xx) * std::sqrt(tt);
    return divisor > 0 ? std::clamp(xt / divisor, -1.0, 1.0) : divisor == 0 ? 0 : divisor;
  }
};

struct Numbered {
  float value;
  uint32_t row;
};

// Stores twice the rank of each row, starting at 2. Equal values get twice their mean rank. Twice
// the mean of all ranks is rows + 1.
void find_ranks(std::span<Numbered> sorted, uint32_t* ranks) {
  std::ranges::sort(sorted, {}, &Numbered::value);
  for (size_t begin = 0, end = 0; begin < sorted.size(); begin = end) {
    while (end < sorted.size() && sorted[end].value == sorted[begin].value) ++end;
    for (size_t i = begin; i < end; ++i)
      ranks[sorted[i].row] = static_cast<uint32_t>(begin + end + 1);
  }
}

struct Column {
  const ValueMetrics::Samples& samples;
  int64_t number;

  float prediction(int64_t row) const { return samples.predictions[row * samples.stride + number]; }
  float target(int64_t row) const { return samples.targets[row * samples.stride + number]; }
  double scaled(float value) const {
    if (samples.scale.empty()) return value;
    const auto c = static_cast<size_t>(number);
    return static_cast<double>(value) * samples.scale[c] + samples.shift[c];
  }
};

double spearman(const Column& column, std::byte* scratch) {
  const auto rows = static_cast<size_t>(column.samples.rows);
  auto* const numbered = reinterpret_cast<Numbered*>(scratch);
  auto* const x = reinterpret_cast<uint32_t*>(scratch + rows * sizeof(Numbered));
  uint32_t* const t = x + rows;
  const auto rank = [&](auto value_of, uint32_t* ranks) {
    for (size_t i = 0; i < rows; ++i)
      numbered[i] = {value_of(static_cast<int64_t>(i)), static_cast<uint32_t>(i)};
    find_ranks({numbered, rows}, ranks);
  };
  rank([&](int64_t i) { return column.prediction(i); }, x);
  rank([&](int64_t i) { return column.target(i); }, t);
  Correlation correlation;
  const double mean = static_cast<double>(rows) + 1;
  for (size_t i = 0; i < rows; ++i) correlation.add(x[i] - mean, t[i] - mean);
  return correlation.value();
}

}  // namespace

size_t ValueMetrics::scratch_bytes(int64_t rows) {
  return static_cast<size_t>(rows) * (sizeof(Numbered) + 2 * sizeof(uint32_t));
}

ValueScores ValueMetrics::of_column(const Samples& samples, int64_t number, std::byte* scratch) {
  const auto rows = static_cast<double>(samples.rows);
  const Column column = {samples, number};
  double mean_x = 0, mean_t = 0, absolute_error = 0, squared = 0;
  bool not_a_number = false, x_differs = false, t_differs = false;
  for (int64_t i = 0; i < samples.rows; ++i) {
    const double x = column.scaled(column.prediction(i)), t = column.scaled(column.target(i));
    mean_x += x;
    mean_t += t;
    absolute_error += std::abs(x - t);
    squared += (x - t) * (x - t);
    not_a_number |= std::isnan(x) || std::isnan(t);
    x_differs |= column.prediction(i) != column.prediction(0);
    t_differs |= column.target(i) != column.target(0);
  }
  mean_x /= rows;
  mean_t /= rows;
  Correlation correlation;
  for (int64_t i = 0; i < samples.rows; ++i)
    correlation.add(column.scaled(column.prediction(i)) - mean_x,
                    column.scaled(column.target(i)) - mean_t);
  // The mean may be rounded, and then equal values would differ from it.
  if (!x_differs) correlation.xx = 0;
  if (!t_differs) correlation.tt = 0;
  return {
      .mean_absolute_error = absolute_error / rows,
      .root_mean_squared_error = std::sqrt(squared / rows),
      .r_squared = correlation.tt > 0 ? 1 - squared / correlation.tt
                   : squared == 0     ? 1.0
                                      : 0.0,
      .pearson = correlation.value(),
      // NaN has no order to sort by.
      .spearman =
          not_a_number ? std::numeric_limits<double>::quiet_NaN() : spearman(column, scratch),
  };
}

TaskMetrics ValueMetrics::of(const Samples& samples, std::byte* scratch) {
  ValueScores sum;
  for (int64_t c = 0; c < samples.columns; ++c) {
    const ValueScores column = of_column(samples, c, scratch);
    sum.mean_absolute_error += column.mean_absolute_error;
    sum.r_squared += column.r_squared;
    sum.pearson += column.pearson;
    sum.spearman += column.spearman;
  }
  const auto columns = static_cast<double>(samples.columns);
  TaskMetrics metrics;
  metrics[kMeanAbsoluteError] = sum.mean_absolute_error / columns;
  metrics[kRSquared] = sum.r_squared / columns;
  metrics[kPearson] = sum.pearson / columns;
  metrics[kSpearman] = sum.spearman / columns;
  return metrics;
}

}  // namespace lockstep::metrics
