// Catches: a wrong gradient term, variance by cancellation, the residual addition or its gradient
// left out, a mask that is not the forward pass's, rows lost at block borders, sums that depend on
// threads, working in place that reads what it has written, writes outside an array.

#include "runtime/cpu/ops/batch_norm.h"

#include <deque>

#include "tests/reference/batch_norm.h"
#include "tests/reference/kernel_test.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

constexpr float kEpsilon = 1e-5f;

TEST(BatchNormTest, DoublePrecisionGradientMatchesFiniteDifferences) {
  for (const bool relu : {false, true}) {
    const int64_t rows = 5, channels = 3;
    std::vector<double> x(rows * channels), delta(x.size()), d_y(x.size()), gamma(channels),
        beta(channels);
    test::fill_uniform(x, -1, 1, 1);
    test::fill_uniform(delta, -1, 1, 2);
    test::fill_uniform(d_y, -1, 1, 3);
    test::fill_uniform(gamma, 0.5, 1.5, 4);
    test::fill_uniform(beta, -1, 1, 5);
    const auto f = [&] {
      const auto y = test::batch_norm_forward(x, delta, gamma, beta, kEpsilon, relu).y;
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += d_y[i] * y[i];
      return sum;
    };
    const auto gradients = test::batch_norm_backward(d_y, x, delta, gamma, beta, kEpsilon, relu);
    test::expect_gradient(f, x, gradients.d_x, "d_x");
    test::expect_gradient(f, delta, gradients.d_delta, "d_delta");
    test::expect_gradient(f, gamma, gradients.d_gamma, "d_gamma");
    test::expect_gradient(f, beta, gradients.d_beta, "d_beta");
  }
}

struct Case {
  int64_t rows, channels;
  bool delta, relu;
  double mean = 2;  // of x, whose deviation is about 0.6
};

// Everything that the kernels compute for a case; d_y's are random.
struct Norm {
  explicit Norm(const Case& at)
      : at(at),
        n(at.rows * at.channels),
        x(n, 1),
        delta(n, 2),
        y(n, 3),
        d_y(n, 2),
        d_x(n, 1),
        d_delta(n, 3),
        gamma(at.channels, 1),
        beta(at.channels, 2),
        mean(at.channels, 3),
        variance(at.channels),
        d_gamma(at.channels, 1),
        d_beta(at.channels, 2),
        workspace(static_cast<int64_t>(cpu::batch_norm_workspace_bytes(at.rows, at.channels))) {
    test::fill_uniform(x, at.mean - 1, at.mean + 1, 1);
    test::fill_uniform(delta, -1, 1, 2);
    test::fill_uniform(d_y, -1, 1, 3);
    test::fill_uniform(gamma, 0.5, 1.5, 4);
    test::fill_uniform(beta, -1, 1, 5);
  }
  void forward(float* to) {
    cpu::batch_norm_statistics(
        at.rows, at.channels, x.data(), mean.data(), variance.data(), workspace.data());
    cpu::batch_norm_forward({.rows = at.rows,
                             .channels = at.channels,
                             .epsilon = kEpsilon,
                             .relu = at.relu,
                             .x = x.data(),
                             .delta = at.delta ? delta.data() : nullptr,
                             .gamma = gamma.data(),
                             .beta = beta.data(),
                             .mean = mean.data(),
                             .variance = variance.data(),
                             .y = to,
                             .workspace = workspace.data()});
  }
  void backward(float* d_x_to, float* d_delta_to) {
    cpu::batch_norm_backward({.rows = at.rows,
                              .channels = at.channels,
                              .epsilon = kEpsilon,
                              .relu = at.relu,
                              .d_y = d_y.data(),
                              .y = at.delta && at.relu ? y.data() : nullptr,
                              .x = x.data(),
                              .gamma = gamma.data(),
                              .beta = beta.data(),
                              .mean = mean.data(),
                              .variance = variance.data(),
                              .d_x = d_x_to,
                              .d_delta = at.delta ? d_delta_to : nullptr,
                              .d_gamma = d_gamma.data(),
                              .d_beta = d_beta.data(),
                              .workspace = workspace.data()});
  }

  Case at;
  int64_t n;
  Guarded<float> x, delta, y, d_y, d_x, d_delta, gamma, beta, mean, variance, d_gamma, d_beta;
  Guarded<std::byte> workspace;
};

void check(const Case& at, const std::string& target) {
  const std::string where = " (" + std::to_string(at.rows) + ", " + std::to_string(at.channels) +
                            (at.delta ? ", delta" : "") + (at.relu ? ", relu" : "") + "), " +
                            target;
  Norm run(at);
  run.forward(run.y.data());
  const auto x = test::to_double(run.x), gamma = test::to_double(run.gamma),
             beta = test::to_double(run.beta);
  const auto delta = at.delta ? test::to_double(run.delta) : std::vector<double>();
  const auto expected = test::batch_norm_forward(x, delta, gamma, beta, kEpsilon, at.relu);
  // Blocks are summed in fp32, from distances below 2: a block's error is some ulps of that.
  test::expect_close(run.mean, expected.mean, (std::abs(at.mean) + 8) * kEps, "mean" + where);
  test::expect_close(
      run.variance,
      expected.variance,
      [&](int64_t c) { return 64 * kEps * (expected.variance[c] + kEps); },
      "variance" + where);
  // The mean's last bit moves every y by gamma * rstd of it.
  const auto tolerance = [&](int64_t i) {
    const auto c = static_cast<size_t>(i % at.channels);
    const double rstd = 1 / std::sqrt(expected.variance[c] + kEpsilon);
    return (4 * (std::abs(at.mean) + 8) * rstd + 64) * kEps;
  };
  test::expect_close(run.y, expected.y, tolerance, "y" + where);

  run.backward(run.d_x.data(), run.d_delta.data());
  const auto gradients =
      test::batch_norm_backward(test::to_double(run.d_y), x, delta, gamma, beta, kEpsilon, at.relu);
  // Where y is as good as zero, rounding may decide whether the gradient passes: such elements are
  // left out, and what they may add to the sums is allowed for.
  double doubtful = 0;
  for (int64_t i = 0; i < run.n; ++i)
    doubtful += at.relu && expected.y[static_cast<size_t>(i)] < tolerance(i) && run.y[i] != 0;
  const double sum_tolerance =
      (64 + std::sqrt(static_cast<double>(at.rows)) * 8) * kEps * 4 + doubtful * 4;
  test::expect_close(run.d_beta, gradients.d_beta, sum_tolerance, "d_beta" + where);
  test::expect_close(
      run.d_gamma,
      gradients.d_gamma,
      [&](int64_t c) {
        const double rstd = 1 / std::sqrt(expected.variance[static_cast<size_t>(c)] + kEpsilon);
        return sum_tolerance * (1 + (std::abs(at.mean) + 8) * rstd);
      },
      "d_gamma" + where);
  const auto d_x_tolerance = [&](int64_t i) {
    const auto c = static_cast<size_t>(i % at.channels);
    const double rstd = 1 / std::sqrt(expected.variance[c] + kEpsilon);
    return (64 + 4 * (std::abs(at.mean) + 8) * rstd) * rstd * 4 * kEps + doubtful;
  };
  test::expect_close(run.d_x, gradients.d_x, d_x_tolerance, "d_x" + where);
  if (at.delta && doubtful == 0)
    test::expect_close(run.d_delta, gradients.d_delta, 0.0, "d_delta" + where);
}

TEST(BatchNormTest, AgreesWithTheReference) {
  test::for_each_target([](const std::string& target) {
    for (const bool delta : {false, true}) {
      for (const bool relu : {false, true}) {
        for (const auto& [rows, channels] :
             {std::pair<int64_t, int64_t>{2, 1}, {7, 5}, {16, 16}, {129, 64}, {4100, 3}, {300, 67}})
          check({rows, channels, delta, relu}, target);
      }
    }
  });
}

TEST(BatchNormTest, VarianceDoesNotCancel) {
  // A mean ten thousand deviations away: E[x^2] - E[x]^2 in fp32 would be noise.
  check({600, 17, false, false, 10000}, "far from zero");
}

TEST(BatchNormTest, ConstantChannelsAndSingleRowsHaveNoVariance) {
  Norm run({64, 4, false, true, 2});
  std::fill(run.x.begin(), run.x.end(), 0.1f);
  run.forward(run.y.data());
  for (int64_t c = 0; c < 4; ++c) {
    EXPECT_EQ(run.mean[c], 0.1f);
    EXPECT_EQ(run.variance[c], 0.0f);
    EXPECT_EQ(run.y[c], std::max(run.beta[c], 0.0f));
  }
  Norm row({1, 4, false, false, 2});
  row.forward(row.y.data());
  for (int64_t c = 0; c < 4; ++c) EXPECT_EQ(row.y[c], row.beta[c]);
  Guarded<float> unbiased(4);
  cpu::unbiased_variance(1, 4, row.variance.data(), unbiased.data());
  for (int64_t c = 0; c < 4; ++c) EXPECT_EQ(unbiased[c], 0.0f);
  cpu::unbiased_variance(5, 4, row.beta.data(), unbiased.data());
  for (int64_t c = 0; c < 4; ++c) EXPECT_EQ(unbiased[c], row.beta[c] * 1.25f);
}

TEST(BatchNormTest, NotANumberIsNotHidden) {
  Norm run({20, 3, false, true, 0});
  run.x[7] = std::numeric_limits<float>::quiet_NaN();
  run.forward(run.y.data());
  EXPECT_TRUE(std::isnan(run.mean[1]) && std::isnan(run.variance[1]) && std::isnan(run.y[4]));
  EXPECT_FALSE(std::isnan(run.y[0]));
}

TEST(BatchNormTest, WorksInPlace) {
  for (const bool relu : {false, true}) {
    Norm apart({333, 20, true, relu}), over_x({333, 20, true, relu}),
        over_delta({333, 20, true, relu});
    apart.forward(apart.y.data());
    over_x.forward(over_x.x.data());
    over_delta.forward(over_delta.delta.data());
    test::expect_same_bits(apart.y, over_x.x, "y over x");
    test::expect_same_bits(apart.y, over_delta.delta, "y over delta");

    apart.backward(apart.d_x.data(), apart.d_delta.data());
    Norm first({333, 20, true, relu}), second({333, 20, true, relu});
    first.forward(first.y.data());
    first.backward(first.x.data(), first.d_y.data());
    test::expect_same_bits(apart.d_x, first.x, "d_x over x");
    test::expect_same_bits(apart.d_delta, first.d_y, "d_delta over d_y");
    second.forward(second.y.data());
    second.backward(second.d_y.data(), second.y.data());
    test::expect_same_bits(apart.d_x, second.d_y, "d_x over d_y");
    test::expect_same_bits(apart.d_delta, second.y, "d_delta over y");
  }
}

// The halves that synchronised norms are made of: one batch in lanes gives what it gives whole.
void check_lanes(int64_t lanes, const Case& of_lane, const std::string& where) {
  const int64_t rows = of_lane.rows, channels = of_lane.channels, lane = rows * channels;
  Case at = of_lane;
  at.rows *= lanes;
  Norm whole(at);
  for (int64_t i = 0; i < whole.n; ++i)  // lanes whose means differ
    whole.x[i] += static_cast<float>(i / lane);
  Guarded<float> statistics(2 * lanes * channels), mean(channels), variance(channels);
  for (int64_t l = 0; l < lanes; ++l) {
    float* const to = statistics.data() + 2 * l * channels;
    cpu::batch_norm_statistics(
        rows, channels, whole.x.data() + l * lane, to, to + channels, whole.workspace.data());
  }
  cpu::combine_lane_statistics(lanes, channels, statistics.data(), mean.data(), variance.data());
  whole.forward(whole.y.data());
  const double size = 2 + static_cast<double>(lanes);
  test::expect_close(mean, test::to_double(whole.mean), 8 * kEps * size, "mean" + where);
  test::expect_close(
      variance, test::to_double(whole.variance), 16 * kEps * size * size, "variance" + where);

  // From here on with the same statistics.
  whole.backward(whole.d_x.data(), whole.d_delta.data());
  const bool from_y = at.delta && at.relu;
  const auto half = [&](int64_t l, Norm& part) {
    return cpu::BatchNormBackward{.rows = rows,
                                  .channels = channels,
                                  .epsilon = kEpsilon,
                                  .relu = at.relu,
                                  .d_y = whole.d_y.data() + l * lane,
                                  .y = from_y ? whole.y.data() + l * lane : nullptr,
                                  .x = whole.x.data() + l * lane,
                                  .gamma = whole.gamma.data(),
                                  .beta = whole.beta.data(),
                                  .mean = whole.mean.data(),
                                  .variance = whole.variance.data(),
                                  .d_x = nullptr,
                                  .d_delta = from_y ? part.d_delta.data() : nullptr,
                                  .d_gamma = part.d_gamma.data(),
                                  .d_beta = part.d_beta.data(),
                                  .workspace = part.workspace.data()};
  };
  std::deque<Norm> parts;
  std::vector<double> sums(static_cast<size_t>(channels)), products(sums);
  for (int64_t l = 0; l < lanes; ++l) {
    Norm& part = parts.emplace_back(of_lane);
    cpu::batch_norm_backward_sums(half(l, part));
    for (int64_t c = 0; c < channels; ++c) {
      sums[static_cast<size_t>(c)] += part.d_beta[c];
      products[static_cast<size_t>(c)] += part.d_gamma[c];
    }
  }
  const double sum_eps = 4 * kEps * static_cast<double>(at.rows);
  test::expect_close(whole.d_beta, sums, sum_eps, "d_beta" + where);
  test::expect_close(whole.d_gamma, products, sum_eps, "d_gamma" + where);
  for (int64_t l = 0; l < lanes; ++l) {
    Norm& part = parts[static_cast<size_t>(l)];
    cpu::BatchNormBackward op = half(l, part);
    if (from_y) op.d_y = part.d_delta.data(), op.relu = false;  // masked already
    op.y = nullptr;
    op.d_delta = nullptr;
    op.d_x = part.d_x.data();
    cpu::batch_norm_backward_input(op, at.rows, sums.data(), products.data());
    for (int64_t i = 0; i < lane; ++i) {
      const double rstd = 1 / std::sqrt(whole.variance[i % channels] + kEpsilon);
      EXPECT_NEAR(part.d_x[i], whole.d_x[l * lane + i], 64 * kEps * rstd) << "d_x" << where;
      if (from_y) {
        EXPECT_EQ(part.d_delta[i], whole.d_delta[l * lane + i]) << where;
      }
    }
  }
}

TEST(BatchNormTest, LanesTogetherAreOneBatch) {
  test::for_each_target([](const std::string& target) {
    for (const bool delta : {false, true}) {
      for (const bool relu : {false, true}) {
        for (const auto& [lanes, rows, channels] :
             {std::tuple<int64_t, int64_t, int64_t>{3, 37, 5}, {2, 1100, 16}, {5, 2, 67}})
          check_lanes(lanes, {rows, channels, delta, relu}, " of lanes, " + target);
      }
    }
  });
}

TEST(BatchNormTest, BitsDoNotDependOnThreadsOrVectors) {
  for (const bool delta : {false, true}) {
    test::expect_reproducible<float>(
        [&] {
          Norm run({2100, 37, delta, true});
          run.forward(run.y.data());
          run.backward(run.d_x.data(), run.d_delta.data());
          std::vector<float> all = run.y.copy();
          for (const auto* more : {&run.d_x, &run.mean, &run.variance, &run.d_gamma, &run.d_beta})
            all.insert(all.end(), more->begin(), more->end());
          return all;
        },
        "batch_norm");
  }
}

}  // namespace
}  // namespace lockstep
