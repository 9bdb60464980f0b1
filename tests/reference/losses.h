#pragma once
// The losses in double precision: one row each, with its gradient.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace lockstep::test {

struct RowLoss {
  double loss = 0;
  double correct = 0;
  std::vector<double> gradient;  // (outputs) of the loss, unscaled
};

// The target is `mix` of the one and 1 - mix of the other.
inline RowLoss softmax_cross_entropy_row(const std::vector<double>& x,
                                         int64_t target,
                                         double smoothing,
                                         int64_t other = 0,
                                         double mix = 1) {
  const double largest = *std::max_element(x.begin(), x.end());
  const double classes = static_cast<double>(x.size());
  double sum = 0;
  for (double value : x) sum += std::exp(value - largest);
  RowLoss row;
  row.gradient.resize(x.size());
  for (size_t v = 0; v < x.size(); ++v) {
    const double log_p = x[v] - largest - std::log(sum);
    const auto is = [&](int64_t column) { return static_cast<int64_t>(v) == column ? 1.0 : 0.0; };
    const double wanted =
        (1 - smoothing) * (mix * is(target) + (1 - mix) * is(other)) + smoothing / classes;
    if (wanted > 0) row.loss -= wanted * log_p;
    row.gradient[v] = std::exp(log_p) - wanted;
  }
  row.correct =
      std::max_element(x.begin(), x.end()) - x.begin() == target;  // the first of the largest
  return row;
}

// The second target of row `row` of those that count, of which there are `counted` with or without
// one: see runtime/cpu/ops/softmax_cross_entropy.h.
template <typename Targets>
int64_t other_target(const Targets& targets, int64_t counted, int64_t row) {
  const int64_t other = targets[counted - 1 - row];
  return other >= 0 ? other : targets[row];
}

inline RowLoss mean_squared_error_row(const std::vector<double>& y,
                                      const std::vector<double>& target) {
  RowLoss row;
  const double outputs = static_cast<double>(y.size());
  for (size_t i = 0; i < y.size(); ++i) {
    row.loss += (y[i] - target[i]) * (y[i] - target[i]) / outputs;
    row.gradient.push_back(2 * (y[i] - target[i]) / outputs);
  }
  return row;
}

inline RowLoss binary_cross_entropy_row(const std::vector<double>& x,
                                        const std::vector<double>& target) {
  RowLoss row;
  const double outputs = static_cast<double>(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    row.loss +=
        (std::max(x[i], 0.0) - x[i] * target[i] + std::log1p(std::exp(-std::abs(x[i])))) / outputs;
    row.correct += ((x[i] > 0) == (target[i] > 0.5)) / outputs;
    row.gradient.push_back((1 / (1 + std::exp(-x[i])) - target[i]) / outputs);
  }
  return row;
}

}  // namespace lockstep::test
