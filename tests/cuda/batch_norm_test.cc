// Catches: a wrong gradient term, a mask of ReLU that differs between the passes, rows or channels
// lost at the borders of blocks, warps or vectors, sums that cancel far from zero or depend on the
// order of threads, running statistics of the wrong estimate, writes outside an array.

#include "runtime/cuda/batch_norm.h"

#include "tests/fibers/kernel_test.h"
#include "tests/reference/batch_norm.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

constexpr float kEpsilon = 1e-5f;

struct Case {
  int64_t rows, channels;
  bool residual, relu;
  double centre = 0;   // of x
  int64_t offset = 0;  // of all arrays of T, in elements from a multiple of 64 bytes
};

// With T's spacing s an output v may be off by s |v| / 2 for its own rounding; all else is float.
template <typename T>
std::vector<std::byte> check(const Case& at, const std::string& order) {
  const int64_t rows = at.rows, channels = at.channels, n = rows * channels;
  const std::string where =
      " (" + std::to_string(rows) + ", " + std::to_string(channels) + "), " + order;
  Guarded<T> x(n, at.offset), delta(n, at.offset), y(n, at.offset), d_y(n, at.offset);
  Guarded<T> gain(channels, at.offset), bias(channels, at.offset);
  Guarded<float> mean(channels), variance(channels);
  Guarded<float> workspace(
      static_cast<int64_t>(cuda::batch_norm_workspace_bytes(rows, channels) / sizeof(float)));
  test::fill_stored(x, at.centre - 2, at.centre + 1, 1);
  test::fill_stored(delta, -1, 1, 2);
  test::fill_stored(gain, 0.5, 1.5, 3);
  test::fill_stored(bias, -1, 1, 4);
  test::fill_stored(d_y, -1, 1, 5);
  const std::vector<double> x64 = test::as_doubles(x), gain64 = test::as_doubles(gain),
                            bias64 = test::as_doubles(bias),
                            delta64 = at.residual ? test::as_doubles(delta) : std::vector<double>();
  cuda::batch_norm_statistics<T>(
      x.data(), rows, channels, mean.data(), variance.data(), workspace.data(), nullptr);
  cuda::batch_norm_forward<T, float>({.rows = rows,
                                      .channels = channels,
                                      .epsilon = kEpsilon,
                                      .relu = at.relu,
                                      .x = x.data(),
                                      .delta = at.residual ? delta.data() : nullptr,
                                      .gain = gain.data(),
                                      .bias = bias.data(),
                                      .mean = mean.data(),
                                      .variance = variance.data(),
                                      .y = y.data()},
                                     nullptr);
  const test::BatchNormResult forward =
      test::batch_norm_forward(x64, delta64, gain64, bias64, kEpsilon, at.relu);
  const double size = 2 + std::abs(at.centre);
  test::expect_close(mean, forward.mean, 8 * kEps * size, "mean" + where);
  test::expect_close(
      variance,
      forward.variance,
      [&](int64_t c) { return 64 * kEps * forward.variance[c] + 1e-12; },
      "variance" + where);
  double steepest = 1;
  for (const double v : forward.variance)
    steepest = std::max(steepest, 1 / std::sqrt(v + kEpsilon));
  const double y_eps = 64 * kEps * steepest * size;
  test::expect_close(
      test::as_doubles(y),
      forward.y,
      [&](int64_t i) { return y_eps + test::kSpacing<T> / 2 * std::abs(forward.y[i]); },
      "y" + where);

  // Where the activation's input is too near to zero both answers are right: the reference is told
  // what the kernel found.
  std::vector<double> passed = test::as_doubles(d_y);
  const bool from_y = at.residual && at.relu;
  for (int64_t i = 0; at.relu && i < n; ++i) {
    if (!(to_float(y[i]) > 0)) passed[i] = 0;
  }
  const test::BatchNormGradients expected =
      test::batch_norm_backward(passed, x64, delta64, gain64, bias64, kEpsilon, false);
  Guarded<T> d_x(n, at.offset), d_delta(n, at.offset);
  Guarded<float> d_gain(channels), d_bias(channels), d_mean(channels, 1), d_variance(channels, 1);
  cuda::batch_norm_backward<T>({.rows = rows,
                                .channels = channels,
                                .epsilon = kEpsilon,
                                .relu = at.relu,
                                .d_y = d_y.data(),
                                .y = from_y ? y.data() : nullptr,
                                .x = x.data(),
                                .gain = gain.data(),
                                .bias = bias.data(),
                                .mean = mean.data(),
                                .variance = variance.data(),
                                .d_x = d_x.data(),
                                .d_delta = from_y ? d_delta.data() : nullptr,
                                .d_gain = d_gain.data(),
                                .d_bias = d_bias.data(),
                                .batch_mean = d_mean.data(),
                                .unbiased_variance = d_variance.data(),
                                .workspace = workspace.data()},
                               nullptr);
  const double sum_eps = 4 * kEps * static_cast<double>(rows) * steepest * size;
  test::expect_close(d_bias, expected.d_bias, sum_eps, "d_bias" + where);
  test::expect_close(d_gain, expected.d_gain, 8 * sum_eps * steepest, "d_gain" + where);
  test::expect_close(
      test::as_doubles(d_x),
      expected.d_x,
      [&](int64_t i) {
        return 64 * y_eps * steepest * steepest + test::kSpacing<T> / 2 * std::abs(expected.d_x[i]);
      },
      "d_x" + where);
  if (from_y) test::expect_close(test::as_doubles(d_delta), passed, 0.0, "d_delta" + where);
  test::expect_same_bits(d_mean, mean, "the batch's mean" + where);
  const double unbiased =
      rows > 1 ? static_cast<double>(rows) / static_cast<double>(rows - 1) : 1.0;
  test::expect_close(
      d_variance,
      forward.variance,
      [&](int64_t c) {
        return std::abs(forward.variance[c]) * (unbiased - 1) + 64 * kEps * forward.variance[c] +
               1e-12;
      },
      "the unbiased variance" + where);
  for (int64_t c = 0; c < channels; ++c)
    EXPECT_NEAR(d_variance[c], variance[c] * unbiased, 4 * kEps * variance[c] * unbiased) << where;
  return test::bytes_of(y, mean, variance, d_x, d_gain, d_bias, d_variance);
}

template <typename T>
class CudaBatchNormTest : public ::testing::Test {};
TYPED_TEST_SUITE(CudaBatchNormTest, test::StoredTypes);

TYPED_TEST(CudaBatchNormTest, MatchesDoublePrecisionInAnyOrder) {
  using T = TypeParam;
  const auto all_orders = [](const Case& at) {
    test::for_each_order([&](const std::string& order) { return check<T>(at, order); });
  };
  for (const int64_t channels : {1, 3, 16, 24, 33, 72}) {
    all_orders({50, channels, false, true});
    all_orders({37, channels, true, true});
    all_orders({5, channels, true, false});
  }
  all_orders({5, 264, false, true});      // more than one tile of channels
  all_orders({5, 16, true, true, 0, 1});  // no array begins on a multiple of 16 bytes
  all_orders({4500, 8, true, true});      // several blocks of rows, the last one short
  if constexpr (sizeof(T) == 4) all_orders({600, 16, false, false, 1000});
}

TYPED_TEST(CudaBatchNormTest, NothingCancelsFarFromZero) {
  if constexpr (sizeof(TypeParam) == 4) check<TypeParam>({3000, 4, false, false, 4096}, "forward");
}

TYPED_TEST(CudaBatchNormTest, WorksInPlace) {
  using T = TypeParam;
  const int64_t rows = 70, channels = 24, n = rows * channels;
  Guarded<T> x(n), delta(n), gain(channels), bias(channels), y(n), d_y(n), d_x(n), d_delta(n);
  Guarded<float> mean(channels), variance(channels), sums(4 * channels);
  std::vector<float> workspace(cuda::batch_norm_workspace_bytes(rows, channels));
  test::fill_stored(x, -2, 1, 1);
  test::fill_stored(delta, -1, 1, 2);
  test::fill_stored(gain, 0.5, 1.5, 3);
  test::fill_stored(bias, -1, 1, 4);
  test::fill_stored(d_y, -1, 1, 5);
  cuda::batch_norm_statistics<T>(
      x.data(), rows, channels, mean.data(), variance.data(), workspace.data(), nullptr);
  cuda::BatchNormForward<T, float> forward{};
  forward.rows = rows, forward.channels = channels, forward.epsilon = kEpsilon;
  forward.relu = true, forward.x = x.data(), forward.delta = delta.data();
  forward.gain = gain.data(), forward.bias = bias.data(), forward.mean = mean.data();
  forward.variance = variance.data(), forward.y = y.data();
  cuda::batch_norm_forward(forward, nullptr);
  const std::vector<T> kept = x.copy();
  forward.y = x.data();
  cuda::batch_norm_forward(forward, nullptr);
  EXPECT_EQ(test::bytes_of(y), test::bytes_of(x));
  x.assign(kept);
  forward.y = delta.data();
  cuda::batch_norm_forward(forward, nullptr);
  EXPECT_EQ(test::bytes_of(y), test::bytes_of(delta));

  cuda::BatchNormBackward<T> backward{};
  backward.rows = rows, backward.channels = channels, backward.epsilon = kEpsilon;
  backward.relu = true, backward.d_y = d_y.data(), backward.y = y.data(), backward.x = x.data();
  backward.gain = gain.data(), backward.bias = bias.data(), backward.mean = mean.data();
  backward.variance = variance.data(), backward.d_x = d_x.data();
  backward.d_delta = d_delta.data(), backward.d_gain = sums.data();
  backward.d_bias = sums.data() + channels, backward.batch_mean = sums.data() + 2 * channels;
  backward.unbiased_variance = sums.data() + 3 * channels, backward.workspace = workspace.data();
  cuda::batch_norm_backward(backward, nullptr);
  backward.d_x = x.data();
  backward.d_delta = d_y.data();
  cuda::batch_norm_backward(backward, nullptr);
  EXPECT_EQ(test::bytes_of(d_x), test::bytes_of(x));
  EXPECT_EQ(test::bytes_of(d_delta), test::bytes_of(d_y));
}

// Statistics that are stored as T, as those of evaluation are.
TYPED_TEST(CudaBatchNormTest, EvaluatesWithStoredStatistics) {
  using T = TypeParam;
  for (const int64_t channels : {5, 16}) {
    const int64_t rows = 9;
    Guarded<T> x(rows * channels), y(rows * channels), gain(channels), bias(channels),
        mean(channels), variance(channels);
    test::fill_stored(x, -2, 1, 1);
    test::fill_stored(gain, 0.5, 1.5, 3);
    test::fill_stored(bias, -1, 1, 4);
    test::fill_stored(mean, -1, 1, 5);
    test::fill_stored(variance, 0.5, 2, 6);
    cuda::BatchNormForward<T, T> op{};
    op.rows = rows, op.channels = channels, op.epsilon = kEpsilon, op.x = x.data();
    op.gain = gain.data(), op.bias = bias.data(), op.mean = mean.data();
    op.variance = variance.data(), op.y = y.data();
    cuda::batch_norm_forward(op, nullptr);
    for (int64_t i = 0; i < rows * channels; ++i) {
      const int64_t c = i % channels;
      const double expected = (to_float(x[i]) - to_float(mean[c])) /
                                  std::sqrt(to_float(variance[c]) + kEpsilon) * to_float(gain[c]) +
                              to_float(bias[c]);
      EXPECT_NEAR(to_float(y[i]), expected, 16 * kEps + test::kSpacing<T> / 2 * std::abs(expected));
    }
  }
}

}  // namespace
}  // namespace lockstep
