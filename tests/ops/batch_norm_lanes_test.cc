// Catches, of batch norms that are synchronised over lanes: statistics or sums of fewer rows than all
// lanes' in a formula of the ops, which batch_norm_test.cc holds the kernels to one by one; a
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
    graph::BatchNormForward<double> op{};
    op.rows = some_rows;
    op.channels = channels;
    op.lanes = statistics != nullptr ? lanes : 0;
    op.epsilon = 1e-5f;
    op.relu = relu;
    op.x = x.data() + first;
    op.delta = with_delta ? delta.data() + first : nullptr;
    op.gamma = gamma.data();
    op.beta = beta.data();
    op.lane_statistics = statistics;
    op.y = y.data() + first;
    op.mean = mean.data();
    op.variance = variance.data();
    batch_norm_forward(op);
  }
  graph::BatchNormGradientInputs<double> inputs(int64_t first, int64_t some_rows) const {
    return {some_rows,
            channels,
            1e-5f,
            relu,
            d_y.data() + first,
            from_y() ? y.data() + first : nullptr,
            x.data() + first,
            gamma.data(),
            beta.data(),
            mean.data(),
            variance.data()};
  }
  double* d_delta_from(int64_t first) { return from_y() ? d_delta.data() + first : nullptr; }
  graph::BatchNormParameterGradients<double> parameters() {
    return {d_gamma.data(), d_beta.data(), d_mean.data(), d_variance.data()};
  }

  void run_whole() {
    run_forward(0, lanes * rows, nullptr);
    batch_norm_backward(
        {inputs(0, lanes * rows), d_x.data(), d_delta_from(0), parameters(), nullptr});
  }

  // As the graph has it. Each lane's d_gamma and d_beta are added.
  void run_in_lanes() {
    const int64_t n = 2 * channels;
    Array statistics(static_cast<size_t>(lanes * n)), sums = statistics;
    for (int64_t l = 0; l < lanes; ++l)
      batch_statistics({rows, channels, x.data() + l * lane, statistics.data() + l * n, nullptr});
    for (int64_t l = 0; l < lanes; ++l) {
      const int64_t first = l * lane;
      run_forward(first, rows, statistics.data());
      batch_norm_sums({inputs(first, rows),
                       lanes,
                       sums.data() + l * n,
                       d_delta_from(first),
                       parameters(),
                       nullptr});
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
      batch_norm_input_gradient({in, lanes, sums.data(), d_x.data() + l * lane, nullptr});
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
