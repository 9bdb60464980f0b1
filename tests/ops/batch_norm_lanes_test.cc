// Catches, of batch norms that are synchronised over lanes: statistics or sums of fewer rows than
// all lanes' in a formula of the ops, which batch_norm_test.cc holds the kernels to one by one; a
// gradient masked twice.
#include <gtest/gtest.h>

#include "tests/reference/batch_norm.h"
#include "tests/reference/kernel_test.h"

namespace lockstep::test {
namespace {

using Array = std::vector<double>;

Array filled(uint64_t seed, int64_t size, double low, double high) {
  Array values(static_cast<size_t>(size));
  fill_uniform(values, low, high, seed);
  return values;
}

// A batch of some lanes, and what the references of the ops make of it.
struct Batch {
  int64_t lanes, rows, channels;  // rows of a lane
  bool with_delta, relu;
  int64_t lane = rows * channels, all = lanes * lane;
  Array x = filled(1, all, -2, 1), delta = filled(2, all, -1, 1), d_y = filled(3, all, -1, 1),
        gamma = filled(4, channels, 0.5, 1.5), beta = filled(5, channels, -1, 1);
  Array y = x, d_x = x, d_delta = x, mean = gamma, variance = gamma, d_gamma = gamma,
        d_beta = gamma, d_mean = gamma, d_variance = gamma;

  bool from_y() const { return with_delta && relu; }
  // Of rows from element `first` on; with the lanes' statistics, or null.
  void run_forward(int64_t first, int64_t some_rows, const double* statistics) {
    batch_norm_forward({.rows = some_rows,
                        .channels = channels,
                        .lanes = statistics != nullptr ? lanes : 0,
                        .epsilon = 1e-5f,
                        .relu = relu,
                        .x = x.data() + first,
                        .delta = with_delta ? delta.data() + first : nullptr,
                        .gamma = gamma.data(),
                        .beta = beta.data(),
                        .lane_statistics = statistics,
                        .y = y.data() + first,
                        .mean = mean.data(),
                        .variance = variance.data()});
  }
  graph::BatchNormGradientInputs<double> inputs(int64_t first, int64_t some_rows) const {
    return {.rows = some_rows,
            .channels = channels,
            .epsilon = 1e-5f,
            .relu = relu,
            .d_y = d_y.data() + first,
            .y = from_y() ? y.data() + first : nullptr,
            .x = x.data() + first,
            .gamma = gamma.data(),
            .beta = beta.data(),
            .mean = mean.data(),
            .variance = variance.data()};
  }
  double* d_delta_from(int64_t first) { return from_y() ? d_delta.data() + first : nullptr; }
  graph::BatchNormParameterGradients<double> parameters() {
    return {.d_gamma = d_gamma.data(),
            .d_beta = d_beta.data(),
            .d_running_mean = d_mean.data(),
            .d_running_variance = d_variance.data()};
  }

  void run_whole() {
    run_forward(0, lanes * rows, nullptr);
    batch_norm_backward({.in = inputs(0, lanes * rows),
                         .d_x = d_x.data(),
                         .d_delta = d_delta_from(0),
                         .parameters = parameters()});
  }

  // As the graph has it. Each lane's d_gamma and d_beta are added.
  void run_in_lanes() {
    const int64_t n = 2 * channels;
    Array statistics(static_cast<size_t>(lanes * n)), sums = statistics;
    for (int64_t l = 0; l < lanes; ++l)
      batch_statistics({.rows = rows,
                        .channels = channels,
                        .x = x.data() + l * lane,
                        .statistics = statistics.data() + l * n});
    for (int64_t l = 0; l < lanes; ++l) {
      const int64_t first = l * lane;
      run_forward(first, rows, statistics.data());
      batch_norm_sums({.in = inputs(first, rows),
                       .lanes = lanes,
                       .sums = sums.data() + l * n,
                       .d_delta = d_delta_from(first),
                       .parameters = parameters()});
    }
    d_beta.assign(d_beta.size(), 0);
    d_gamma.assign(d_gamma.size(), 0);
    for (int64_t l = 0; l < lanes; ++l) {
      auto in = inputs(l * lane, rows);
      if (from_y()) {
        in.d_y = d_delta.data() + l * lane;
        in.y = nullptr;
        in.relu = false;
      }
      batch_norm_input_gradient(
          {.in = in, .lanes = lanes, .all_sums = sums.data(), .d_x = d_x.data() + l * lane});
      for (int64_t c = 0; c < channels; ++c) {
        d_beta[static_cast<size_t>(c)] += sums[static_cast<size_t>(l * n + c)];
        d_gamma[static_cast<size_t>(c)] += sums[static_cast<size_t>(l * n + channels + c)];
      }
    }
  }
};

TEST(BatchNormLanesTest, TogetherAreOneBatch) {
  for (const bool delta : {false, true}) {
    for (const bool relu : {false, true}) {
      Batch whole{3, 7, 5, delta, relu};
      for (int64_t i = 0; i < whole.all; ++i)  // lanes whose means differ
        whole.x[static_cast<size_t>(i)] += static_cast<double>(i / whole.lane);
      Batch parts = whole;
      whole.run_whole();
      parts.run_in_lanes();
      expect_close(parts.y, whole.y, 1e-12, "y");
      expect_close(parts.d_x, whole.d_x, 1e-12, "d_x");
      expect_close(parts.d_delta, whole.d_delta, 0.0, "d_delta");
      expect_close(parts.d_gamma, whole.d_gamma, 1e-12, "d_gamma");
      expect_close(parts.d_beta, whole.d_beta, 1e-12, "d_beta");
      expect_close(parts.d_mean, whole.d_mean, 1e-12, "d_running_mean");
      expect_close(parts.d_variance, whole.d_variance, 1e-12, "d_running_variance");
    }
  }
}

}  // namespace
}  // namespace lockstep::test
