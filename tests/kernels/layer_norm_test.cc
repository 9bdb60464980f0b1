// Catches: a wrong gradient term, variance by cancellation, the residual addition or its gradient
// left out, parameter gradients that lose rows at block borders or depend on threads, writes
// outside an array.

#include "runtime/cpu/ops/layer_norm.h"

#include "tests/reference/kernel_test.h"
#include "tests/reference/layer_norm.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

constexpr float kEpsilon = 1e-5f;

TEST(LayerNormTest, DoublePrecisionGradientMatchesFiniteDifferences) {
  const int64_t rows = 3, columns = 5;
  std::vector<double> x(rows * columns), gamma(columns), beta(columns), d_y(rows * columns);
  test::fill_uniform(x, -1, 1, 1);
  test::fill_uniform(gamma, -1, 1, 2);
  test::fill_uniform(beta, -1, 1, 3);
  test::fill_uniform(d_y, -1, 1, 4);
  const auto f = [&] {
    const std::vector<double> y = test::layer_norm_forward(x, gamma, beta, rows, kEpsilon).y;
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += d_y[i] * y[i];
    return sum;
  };
  const test::LayerNormGradients gradients =
      test::layer_norm_backward(d_y, x, gamma, rows, kEpsilon);
  test::expect_gradient(f, x, gradients.d_x, "d_x");
  test::expect_gradient(f, gamma, gradients.d_gamma, "d_gamma");
  test::expect_gradient(f, beta, gradients.d_beta, "d_beta");
}

struct Case {
  int64_t rows, columns;
  bool residual, beta, accumulate;
};

void check(const Case& at, const std::string& target) {
  const int64_t rows = at.rows, columns = at.columns;
  const bool residual = at.residual, with_beta = at.beta, accumulate = at.accumulate;
  const std::string where =
      " (" + std::to_string(rows) + ", " + std::to_string(columns) + "), " + target;
  const int64_t n = rows * columns;
  Guarded<float> x(n, 1), delta(n, 2), sum(n, 3), y(n, 1), gamma(columns, 1), beta(columns, 2),
      mean(rows), rstd(rows, 1);
  test::fill_uniform(
      x, 1, 3, 1);  // a mean of two standard deviations and more: cancellation would show
  test::fill_uniform(delta, -1, 1, 2);
  test::fill_uniform(gamma, 0.5, 1.5, 3);
  test::fill_uniform(beta, -1, 1, 4);
  cpu::layer_norm_forward({.rows = rows,
                           .columns = columns,
                           .epsilon = kEpsilon,
                           .x = x.data(),
                           .delta = residual ? delta.data() : nullptr,
                           .gamma = gamma.data(),
                           .beta = with_beta ? beta.data() : nullptr,
                           .sum = residual ? sum.data() : nullptr,
                           .y = y.data(),
                           .mean = mean.data(),
                           .rstd = rstd.data()});
  std::vector<float> normalised = x.copy();
  if (residual) {
    for (int64_t i = 0; i < n; ++i) normalised[i] += delta[i];
    test::expect_same_bits(normalised, sum, "sum" + where);
  }
  const std::vector<double> x64 = test::to_double(normalised), gamma64 = test::to_double(gamma);
  const test::LayerNormResult forward = test::layer_norm_forward(
      x64, gamma64, with_beta ? test::to_double(beta) : std::vector<double>(), rows, kEpsilon);
  // The mean (up to 4) is a sum in 16 lanes: a lane's error grows with its length. It moves every
  // xhat by error * rstd.
  const double sum_eps = kEps * (4 + static_cast<double>(columns) / 64);
  test::expect_close(mean, forward.mean, 4 * sum_eps, "mean" + where);
  test::expect_close(
      rstd,
      forward.rstd,
      [&](int64_t r) { return 4 * sum_eps * forward.rstd[r] * (1 + forward.rstd[r]); },
      "rstd" + where);
  const auto scale = [&](int64_t i) {
    return 1 + std::abs(forward.y[i]) + 4 * forward.rstd[i / columns];
  };
  test::expect_close(
      y, forward.y, [&](int64_t i) { return 6 * sum_eps * scale(i); }, "y" + where);

  Guarded<float> d_y(n, 3), d_sum(n, 1), d_x(n, 2), d_gamma(columns, 3), d_beta(columns, 1);
  Guarded<float> workspace(cpu::layer_norm_backward_workspace_bytes(rows, columns) / sizeof(float));
  test::fill_uniform(d_y, -1, 1, 5);
  test::fill_uniform(d_sum, -1, 1, 6);
  test::fill_uniform(d_gamma, -1, 1, 7);
  test::fill_uniform(d_beta, -1, 1, 8);
  test::LayerNormGradients expected =
      test::layer_norm_backward(test::to_double(d_y), x64, gamma64, rows, kEpsilon);
  for (int64_t i = 0; residual && i < n; ++i) expected.d_x[i] += d_sum[i];
  for (int64_t c = 0; accumulate && c < columns; ++c) {
    expected.d_gamma[c] += d_gamma[c];
    expected.d_beta[c] += d_beta[c];
  }
  cpu::layer_norm_backward({.rows = rows,
                            .columns = columns,
                            .d_y = d_y.data(),
                            .x = residual ? sum.data() : x.data(),
                            .gamma = gamma.data(),
                            .mean = mean.data(),
                            .rstd = rstd.data(),
                            .d_sum = residual ? d_sum.data() : nullptr,
                            .d_x = d_x.data(),
                            .d_gamma = d_gamma.data(),
                            .d_beta = with_beta ? d_beta.data() : nullptr,
                            .accumulate = accumulate,
                            .workspace = workspace.data()});
  // xhat is wrong by 4 sum_eps rstd at most (its mean), and enters d_x twice, with rstd.
  const auto slope = [&](int64_t i) {
    const double rstd_row = forward.rstd[i / columns];
    return (1 + rstd_row) * (1 + 4 * rstd_row);
  };
  test::expect_close(
      d_x,
      expected.d_x,
      [&](int64_t i) { return 10 * sum_eps * slope(i) * std::max(1.0, slope(i) / 50); },
      "d_x" + where);
  double worst = 0;
  for (int64_t r = 0; r < rows; ++r) worst = std::max(worst, 1 + 4 * forward.rstd[r]);
  const double rows_eps =
      (sum_eps + kEps * (2 + static_cast<double>(rows))) * static_cast<double>(rows);
  test::expect_close(d_gamma, expected.d_gamma, rows_eps * worst * 2, "d_gamma" + where);
  if (with_beta) test::expect_close(d_beta, expected.d_beta, rows_eps, "d_beta" + where);
}

TEST(LayerNormTest, MatchesDoublePrecision) {
  test::for_each_target([](const std::string& target) {
    for (int64_t columns : {1, 15, 17, 64, 1003}) {
      check({5, columns, false, true, false}, target);
      check({5, columns, true, true, true}, target);
      check({1, columns, true, false, false}, target);
    }
    check({300, 33, true, true, false}, target);  // several blocks of rows, the last one short
    check({2200, 17, false, true, true},
          target);  // more rows than the largest number of smallest blocks
  });
}

TEST(LayerNormTest, ConstantRowGivesBeta) {
  const std::vector<float> x(40, 3.25f), gamma(40, 2.0f), beta(40, 0.5f);
  std::vector<float> y(40);
  float mean = 0, rstd = 0;
  cpu::layer_norm_forward({.rows = 1,
                           .columns = 40,
                           .epsilon = kEpsilon,
                           .x = x.data(),
                           .delta = nullptr,
                           .gamma = gamma.data(),
                           .beta = beta.data(),
                           .sum = nullptr,
                           .y = y.data(),
                           .mean = &mean,
                           .rstd = &rstd});
  test::expect_same_bits(beta, y, "y");
}

TEST(LayerNormTest, InPlaceAndReproducible) {
  const int64_t rows = 150, columns = 771, n = rows * columns;
  std::vector<float> x(n), delta(n), gamma(columns), beta(columns), d_y(n), d_sum(n);
  test::fill_uniform(x, -1, 1, 1);
  test::fill_uniform(delta, -1, 1, 2);
  test::fill_uniform(gamma, 0.5, 1.5, 3);
  test::fill_uniform(beta, -1, 1, 4);
  test::fill_uniform(d_y, -1, 1, 5);
  test::fill_uniform(d_sum, -1, 1, 6);
  std::vector<float> workspace(cpu::layer_norm_backward_workspace_bytes(rows, columns) /
                               sizeof(float));
  test::expect_reproducible<float>(
      [&] {
        std::vector<float> sum(x), y(n), mean(rows), rstd(rows), d_gamma(columns), d_beta(columns);
        cpu::layer_norm_forward({.rows = rows,
                                 .columns = columns,
                                 .epsilon = kEpsilon,
                                 .x = sum.data(),
                                 .delta = delta.data(),
                                 .gamma = gamma.data(),
                                 .beta = beta.data(),
                                 .sum = sum.data(),
                                 .y = y.data(),
                                 .mean = mean.data(),
                                 .rstd = rstd.data()});
        cpu::LayerNormBackward backward{.rows = rows,
                                        .columns = columns,
                                        .d_y = d_y.data(),
                                        .x = sum.data(),
                                        .gamma = gamma.data(),
                                        .mean = mean.data(),
                                        .rstd = rstd.data(),
                                        .d_sum = d_sum.data(),
                                        .d_x = nullptr,
                                        .d_gamma = d_gamma.data(),
                                        .d_beta = d_beta.data(),
                                        .accumulate = false,
                                        .workspace = workspace.data()};
        std::vector<float> d_x(n), over_d_y(d_y), over_d_sum(d_sum);
        backward.d_x = d_x.data();
        cpu::layer_norm_backward(backward);
        backward.d_sum = backward.d_x = over_d_sum.data();
        cpu::layer_norm_backward(backward);
        test::expect_same_bits(d_x, over_d_sum, "d_x over d_sum");
        backward.d_sum = d_sum.data();
        backward.d_y = backward.d_x = over_d_y.data();
        cpu::layer_norm_backward(backward);
        test::expect_same_bits(d_x, over_d_y, "d_x over d_y");
        for (const std::vector<float>* more : {&y, &mean, &rstd, &d_gamma, &d_beta}) {
          d_x.insert(d_x.end(), more->begin(), more->end());
        }
        return d_x;
      },
      "layer_norm");
}

}  // namespace
}  // namespace lockstep
