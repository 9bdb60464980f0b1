// Catches: a wrong gradient term, a missing barrier, rows or columns lost at the borders of warps,
// blocks or vectors, sums that depend on the order of threads, writes outside an array.

#include "runtime/cuda/ops/layer_norm.h"

#include "tests/fibers/kernel_test.h"
#include "tests/reference/layer_norm.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

constexpr float kEpsilon = 1e-5f;

struct Case {
  int64_t rows, columns;
  bool residual, beta, accumulate;
  int64_t offset = 0;  // of all arrays, in elements from a multiple of 64 bytes
};

// With T's spacing s, an output v may be off by s |v| / 2 for its own rounding; all else is float.
template <typename T>
std::vector<std::byte> check(const Case& at, const std::string& order) {
  const int64_t rows = at.rows, columns = at.columns, n = rows * columns;
  const std::string where =
      " (" + std::to_string(rows) + ", " + std::to_string(columns) + "), " + order;
  Guarded<T> x(n, at.offset), delta(n, at.offset), sum(n, at.offset), y(n, at.offset);
  Guarded<T> gamma(columns, at.offset), beta(columns, at.offset);
  Guarded<float> mean(rows), rstd(rows, 1);
  test::fill_stored(x, 1, 3, 1);
  test::fill_stored(delta, -1, 1, 2);
  test::fill_stored(gamma, 0.5, 1.5, 3);
  test::fill_stored(beta, -1, 1, 4);
  cuda::layer_norm_forward<T>({.rows = rows,
                               .columns = columns,
                               .epsilon = kEpsilon,
                               .x = x.data(),
                               .delta = at.residual ? delta.data() : nullptr,
                               .gamma = gamma.data(),
                               .beta = at.beta ? beta.data() : nullptr,
                               .sum = at.residual ? sum.data() : nullptr,
                               .y = y.data(),
                               .mean = mean.data(),
                               .rstd = rstd.data()},
                              nullptr);
  Guarded<T> normalised(n);
  for (int64_t i = 0; i < n; ++i) {
    const float value = to_float(x[i]) + (at.residual ? to_float(delta[i]) : 0.0f);
    normalised[i] = round_to<T>(value);
  }
  if (at.residual) {
    EXPECT_EQ(test::bytes_of(normalised), test::bytes_of(sum)) << where;
  }
  const std::vector<double> x64 = test::as_doubles(normalised), gamma64 = test::as_doubles(gamma);
  const test::LayerNormResult forward = test::layer_norm_forward(
      x64, gamma64, at.beta ? test::as_doubles(beta) : std::vector<double>(), rows, kEpsilon);
  const double sum_eps = kEps * (4 + static_cast<double>(columns) / 64);
  test::expect_close(mean, forward.mean, 4 * sum_eps, "mean" + where);
  test::expect_close(
      rstd,
      forward.rstd,
      [&](int64_t r) { return 4 * sum_eps * forward.rstd[r] * (1 + forward.rstd[r]); },
      "rstd" + where);
  test::expect_close(
      test::as_doubles(y),
      forward.y,
      [&](int64_t i) {
        const double size = 1 + std::abs(forward.y[i]);
        return 6 * sum_eps * (size + 4 * forward.rstd[i / columns]) + test::kSpacing<T> / 2 * size;
      },
      "y" + where);

  Guarded<T> d_y(n, at.offset), d_sum(n, at.offset), d_x(n, at.offset);
  Guarded<float> d_gamma(columns, 3), d_beta(columns, 1);
  Guarded<float> workspace(static_cast<int64_t>(
      cuda::layer_norm_backward_workspace_bytes(rows, columns) / sizeof(float)));
  test::fill_stored(d_y, -1, 1, 5);
  test::fill_stored(d_sum, -1, 1, 6);
  test::fill_uniform(d_gamma, -1, 1, 7);
  test::fill_uniform(d_beta, -1, 1, 8);
  test::LayerNormGradients expected =
      test::layer_norm_backward(test::as_doubles(d_y), x64, gamma64, rows, kEpsilon);
  for (int64_t i = 0; at.residual && i < n; ++i) expected.d_x[i] += to_float(d_sum[i]);
  for (int64_t c = 0; at.accumulate && c < columns; ++c) {
    expected.d_gamma[c] += d_gamma[c];
    expected.d_beta[c] += d_beta[c];
  }
  cuda::layer_norm_backward<T>({.rows = rows,
                                .columns = columns,
                                .d_y = d_y.data(),
                                .x = normalised.data(),
                                .gamma = gamma.data(),
                                .mean = mean.data(),
                                .rstd = rstd.data(),
                                .d_sum = at.residual ? d_sum.data() : nullptr,
                                .d_x = d_x.data(),
                                .d_gamma = d_gamma.data(),
                                .d_beta = at.beta ? d_beta.data() : nullptr,
                                .accumulate = at.accumulate,
                                .workspace = workspace.data()},
                               nullptr);
  test::expect_close(
      test::as_doubles(d_x),
      expected.d_x,
      [&](int64_t i) {
        const double rstd_row = forward.rstd[i / columns];
        const double slope = (1 + rstd_row) * (1 + 4 * rstd_row);
        return 10 * sum_eps * slope * std::max(1.0, slope / 50) +
               test::kSpacing<T> / 2 * (1 + std::abs(expected.d_x[i]));
      },
      "d_x" + where);
  double worst = 0;
  for (int64_t r = 0; r < rows; ++r) worst = std::max(worst, 1 + 4 * forward.rstd[r]);
  const double rows_eps =
      (sum_eps + kEps * (2 + static_cast<double>(rows))) * static_cast<double>(rows);
  test::expect_close(d_gamma, expected.d_gamma, rows_eps * worst * 2, "d_gamma" + where);
  if (at.beta) test::expect_close(d_beta, expected.d_beta, rows_eps, "d_beta" + where);
  return test::bytes_of(y, mean, rstd, d_x, d_gamma, d_beta);
}

template <typename T>
class CudaLayerNormTest : public ::testing::Test {};
TYPED_TEST_SUITE(CudaLayerNormTest, test::StoredTypes);

TYPED_TEST(CudaLayerNormTest, MatchesDoublePrecisionInAnyOrder) {
  using T = TypeParam;
  const auto all_orders = [](const Case& at) {
    test::for_each_order([&](const std::string& order) { return check<T>(at, order); });
  };
  for (int64_t columns : {1, 31, 64, 72, 771}) {
    all_orders({5, columns, false, true, false});
    all_orders({5, columns, true, true, true});
    all_orders({1, columns, true, false, false});
  }
  all_orders({3, 768, true, true, false});
  all_orders({3, 768, true, true, false, 1});  // no array begins on a multiple of 16 bytes
  all_orders({2, 2304, true, true, false});    // a row for a whole block, in forward too
  if constexpr (sizeof(T) == 2) all_orders({2, 8192, true, true, false});
  all_orders({2053, 8, true, true, true});  // several rows in each block of rows, the last short
}

TYPED_TEST(CudaLayerNormTest, WorksInPlace) {
  using T = TypeParam;
  const int64_t rows = 3, columns = 136, n = rows * columns;
  Guarded<T> x(n), delta(n), gamma(columns), y(n), apart(n);
  Guarded<float> mean(rows), rstd(rows), d_gamma(columns);
  test::fill_stored(x, -1, 1, 1);
  test::fill_stored(delta, -1, 1, 2);
  test::fill_stored(gamma, 0.5, 1.5, 3);
  cuda::LayerNormForward<T> forward{};
  forward.rows = rows, forward.columns = columns, forward.epsilon = kEpsilon;
  forward.x = x.data(), forward.delta = delta.data(), forward.gamma = gamma.data();
  forward.sum = apart.data(), forward.y = y.data(), forward.mean = mean.data();
  forward.rstd = rstd.data();
  cuda::layer_norm_forward(forward, nullptr);
  const std::vector<std::byte> y_apart = test::bytes_of(y);
  forward.sum = x.data();
  cuda::layer_norm_forward(forward, nullptr);
  EXPECT_EQ(y_apart, test::bytes_of(y));
  EXPECT_EQ(test::bytes_of(apart), test::bytes_of(x));

  std::vector<float> workspace(cuda::layer_norm_backward_workspace_bytes(rows, columns));
  Guarded<T> d_y(n), d_sum(n), d_x(n);
  test::fill_stored(d_y, -1, 1, 4);
  test::fill_stored(d_sum, -1, 1, 5);
  cuda::LayerNormBackward<T> backward{};
  backward.rows = rows, backward.columns = columns;
  backward.d_y = d_y.data(), backward.x = x.data(), backward.gamma = gamma.data();
  backward.mean = mean.data(), backward.rstd = rstd.data(), backward.d_sum = d_sum.data();
  backward.d_x = d_x.data(), backward.d_gamma = d_gamma.data(), backward.d_beta = nullptr;
  backward.accumulate = false, backward.workspace = workspace.data();
  cuda::layer_norm_backward(backward, nullptr);
  backward.d_x = d_sum.data();
  cuda::layer_norm_backward(backward, nullptr);
  EXPECT_EQ(test::bytes_of(d_x), test::bytes_of(d_sum));
}

}  // namespace
}  // namespace lockstep
