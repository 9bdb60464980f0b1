// Catches: a wrong gradient term, a mask of ReLU that differs between the passes, rows or channels
// lost at the borders of blocks, warps or vectors, sums that cancel far from zero or depend on the
// order of threads, running statistics of the wrong estimate, writes outside an array.

#include "runtime/cuda/ops/batch_norm.h"

#include <deque>

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
  Guarded<T> gamma(channels, at.offset), beta(channels, at.offset);
  Guarded<float> mean(channels), variance(channels);
  Guarded<float> workspace(
      static_cast<int64_t>(cuda::batch_norm_workspace_bytes(rows, channels) / sizeof(float)));
  test::fill_stored(x, at.centre - 2, at.centre + 1, 1);
  test::fill_stored(delta, -1, 1, 2);
  test::fill_stored(gamma, 0.5, 1.5, 3);
  test::fill_stored(beta, -1, 1, 4);
  test::fill_stored(d_y, -1, 1, 5);
  const std::vector<double> x64 = test::as_doubles(x), gain64 = test::as_doubles(gamma),
                            bias64 = test::as_doubles(beta),
                            delta64 = at.residual ? test::as_doubles(delta) : std::vector<double>();
  cuda::batch_norm_statistics<T>(
      x.data(), rows, channels, mean.data(), variance.data(), workspace.data(), nullptr);
  cuda::batch_norm_forward<T, float>({.rows = rows,
                                      .channels = channels,
                                      .epsilon = kEpsilon,
                                      .relu = at.relu,
                                      .x = x.data(),
                                      .delta = at.residual ? delta.data() : nullptr,
                                      .gamma = gamma.data(),
                                      .beta = beta.data(),
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
  // All else from the kernel's own statistics: however far from zero x lies, what is left are
  // roundings of numbers around one.
  const std::vector<double> mean64 = test::as_doubles(mean),
                            variance64 = test::as_doubles(variance);
  const auto rstd = [&](int64_t i) {
    return 1 / std::sqrt(variance64[static_cast<size_t>(i % channels)] + kEpsilon);
  };
  const auto xhat = [&](int64_t i) {
    return std::abs(x64[static_cast<size_t>(i)] - mean64[static_cast<size_t>(i % channels)]) *
           rstd(i);
  };
  const std::vector<double> expected_y =
      test::batch_norm_output(x64, delta64, gain64, bias64, mean64, variance64, kEpsilon, at.relu);
  test::expect_close(
      test::as_doubles(y),
      expected_y,
      [&](int64_t i) {
        return 8 * kEps * (2 + xhat(i)) + test::kSpacing<T> / 2 * std::abs(expected_y[i]);
      },
      "y" + where);

  // Where the activation's input is too near to zero both answers are right: the reference is told
  // what the kernel found.
  std::vector<double> passed = test::as_doubles(d_y);
  const bool from_y = at.residual && at.relu;
  for (int64_t i = 0; at.relu && i < n; ++i) {
    if (!(to_float(y[i]) > 0)) passed[i] = 0;
  }
  const test::BatchNormGradients expected =
      test::batch_norm_gradients(passed, x64, gain64, mean64, variance64, kEpsilon);
  Guarded<T> d_x(n, at.offset), d_delta(n, at.offset);
  Guarded<float> d_gamma(channels), d_beta(channels), d_mean(channels, 1), d_variance(channels, 1);
  cuda::batch_norm_backward<T>({.rows = rows,
                                .channels = channels,
                                .epsilon = kEpsilon,
                                .relu = at.relu,
                                .d_y = d_y.data(),
                                .y = from_y ? y.data() : nullptr,
                                .x = x.data(),
                                .gamma = gamma.data(),
                                .beta = beta.data(),
                                .mean = mean.data(),
                                .variance = variance.data(),
                                .d_x = d_x.data(),
                                .d_delta = from_y ? d_delta.data() : nullptr,
                                .d_gamma = d_gamma.data(),
                                .d_beta = d_beta.data(),
                                .batch_mean = d_mean.data(),
                                .unbiased_variance = d_variance.data(),
                                .workspace = workspace.data()},
                               nullptr);
  // No gradient is above one, so sums over rows of them and of g xhat are at most `rows`; each is
  // made of some ten roundings one after the other.
  const double sum_eps = 4 * kEps * static_cast<double>(rows);
  test::expect_close(d_beta, expected.d_beta, sum_eps, "d_beta" + where);
  test::expect_close(d_gamma, expected.d_gamma, sum_eps, "d_gamma" + where);
  test::expect_close(
      test::as_doubles(d_x),
      expected.d_x,
      [&](int64_t i) {
        return 16 * kEps * rstd(i) * (1 + xhat(i)) +
               test::kSpacing<T> / 2 * std::abs(expected.d_x[i]);
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
  return test::bytes_of(y, mean, variance, d_x, d_gamma, d_beta, d_variance);
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
  Guarded<T> x(n), delta(n), gamma(channels), beta(channels), y(n), d_y(n), d_x(n), d_delta(n);
  Guarded<float> mean(channels), variance(channels), sums(4 * channels);
  std::vector<float> workspace(cuda::batch_norm_workspace_bytes(rows, channels));
  test::fill_stored(x, -2, 1, 1);
  test::fill_stored(delta, -1, 1, 2);
  test::fill_stored(gamma, 0.5, 1.5, 3);
  test::fill_stored(beta, -1, 1, 4);
  test::fill_stored(d_y, -1, 1, 5);
  cuda::batch_norm_statistics<T>(
      x.data(), rows, channels, mean.data(), variance.data(), workspace.data(), nullptr);
  cuda::BatchNormForward<T, float> forward{};
  forward.rows = rows, forward.channels = channels, forward.epsilon = kEpsilon;
  forward.relu = true, forward.x = x.data(), forward.delta = delta.data();
  forward.gamma = gamma.data(), forward.beta = beta.data(), forward.mean = mean.data();
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
  backward.gamma = gamma.data(), backward.beta = beta.data(), backward.mean = mean.data();
  backward.variance = variance.data(), backward.d_x = d_x.data();
  backward.d_delta = d_delta.data(), backward.d_gamma = sums.data();
  backward.d_beta = sums.data() + channels, backward.batch_mean = sums.data() + 2 * channels;
  backward.unbiased_variance = sums.data() + 3 * channels, backward.workspace = workspace.data();
  cuda::batch_norm_backward(backward, nullptr);
  backward.d_x = x.data();
  backward.d_delta = d_y.data();
  cuda::batch_norm_backward(backward, nullptr);
  EXPECT_EQ(test::bytes_of(d_x), test::bytes_of(x));
  EXPECT_EQ(test::bytes_of(d_delta), test::bytes_of(d_y));
}

// The halves that synchronised norms are made of. One batch in lanes must give what it gives whole.
template <typename T>
std::vector<std::byte> check_lanes(int64_t lanes, const Case& at, const std::string& order) {
  const int64_t rows = at.rows, channels = at.channels, lane = rows * channels, n = lanes * lane;
  const std::string where = " of " + std::to_string(lanes) + " lanes (" + std::to_string(rows) +
                            ", " + std::to_string(channels) + "), " + order;
  Guarded<T> x(n), delta(n), y(n), d_y(n), gamma(channels), beta(channels);
  Guarded<float> statistics(2 * lanes * channels), mean(channels), variance(channels),
      whole_mean(channels), whole_variance(channels);
  std::vector<float> workspace(cuda::batch_norm_workspace_bytes(lanes * rows, channels));
  test::fill_stored(x, -2, 1, 1);
  test::fill_stored(delta, -1, 1, 2);
  test::fill_stored(gamma, 0.5, 1.5, 3);
  test::fill_stored(beta, -1, 1, 4);
  test::fill_stored(d_y, -1, 1, 5);
  // Lanes whose means differ.
  for (int64_t i = 0; i < n; ++i) x[i] = round_to<T>(to_float(x[i]) + static_cast<float>(i / lane));
  for (int64_t l = 0; l < lanes; ++l) {
    float* const to = statistics.data() + 2 * l * channels;
    cuda::batch_norm_statistics<T>(
        x.data() + l * lane, rows, channels, to, to + channels, workspace.data(), nullptr);
  }
  cuda::combine_lane_statistics(
      lanes, channels, statistics.data(), mean.data(), variance.data(), nullptr);
  cuda::batch_norm_statistics<T>(x.data(),
                                 lanes * rows,
                                 channels,
                                 whole_mean.data(),
                                 whole_variance.data(),
                                 workspace.data(),
                                 nullptr);
  const double size = 2 + static_cast<double>(lanes);
  test::expect_close(mean, test::as_doubles(whole_mean), 8 * kEps * size, "mean" + where);
  test::expect_close(
      variance, test::as_doubles(whole_variance), 16 * kEps * size * size, "variance" + where);

  // From here on with the same statistics.
  cuda::batch_norm_forward<T, float>({.rows = lanes * rows,
                                      .channels = channels,
                                      .epsilon = kEpsilon,
                                      .relu = at.relu,
                                      .x = x.data(),
                                      .delta = at.residual ? delta.data() : nullptr,
                                      .gamma = gamma.data(),
                                      .beta = beta.data(),
                                      .mean = mean.data(),
                                      .variance = variance.data(),
                                      .y = y.data()},
                                     nullptr);
  const bool from_y = at.residual && at.relu;
  struct Gradients {
    Gradients(int64_t elements, int64_t channels)
        : d_x(elements),
          d_delta(elements),
          d_gamma(channels),
          d_beta(channels),
          d_mean(channels, 1),
          d_variance(channels, 1) {}
    Guarded<T> d_x, d_delta;
    Guarded<float> d_gamma, d_beta, d_mean, d_variance;
  };
  const auto backward = [&](int64_t of, int64_t from, Gradients& to) {
    return cuda::BatchNormBackward<T>{.rows = of,
                                      .channels = channels,
                                      .epsilon = kEpsilon,
                                      .relu = at.relu,
                                      .d_y = d_y.data() + from,
                                      .y = from_y ? y.data() + from : nullptr,
                                      .x = x.data() + from,
                                      .gamma = gamma.data(),
                                      .beta = beta.data(),
                                      .mean = mean.data(),
                                      .variance = variance.data(),
                                      .d_x = to.d_x.data(),
                                      .d_delta = from_y ? to.d_delta.data() : nullptr,
                                      .d_gamma = to.d_gamma.data(),
                                      .d_beta = to.d_beta.data(),
                                      .batch_mean = to.d_mean.data(),
                                      .unbiased_variance = to.d_variance.data(),
                                      .workspace = workspace.data()};
  };
  Gradients whole(n, channels);
  cuda::batch_norm_backward<T>(backward(lanes * rows, 0, whole), nullptr);

  std::deque<Gradients> parts;
  Guarded<float> all(2 * lanes * channels), sums(2 * channels);
  for (int64_t l = 0; l < lanes; ++l) {
    Gradients& part = parts.emplace_back(lane, channels);
    cuda::BatchNormBackward<T> op = backward(rows, l * lane, part);
    op.d_x = nullptr;
    cuda::batch_norm_backward_sums<T>(op, lanes, nullptr);
    std::copy(part.d_beta.begin(), part.d_beta.end(), all.data() + 2 * l * channels);
    std::copy(part.d_gamma.begin(), part.d_gamma.end(), all.data() + (2 * l + 1) * channels);
    test::expect_same_bits(part.d_mean, mean, "the batch's mean" + where);
    test::expect_same_bits(part.d_variance, whole.d_variance, "the unbiased variance" + where);
  }
  cuda::sum_lanes(lanes, 2 * channels, all.data(), sums.data(), nullptr);
  const double sum_eps = 4 * kEps * static_cast<double>(lanes * rows);
  for (int64_t c = 0; c < channels; ++c) {
    EXPECT_NEAR(sums[c], whole.d_beta[c], sum_eps) << "d_beta" << where;
    EXPECT_NEAR(sums[channels + c], whole.d_gamma[c], sum_eps) << "d_gamma" << where;
  }
  std::vector<std::byte> bytes = test::bytes_of(mean, variance, sums);
  for (int64_t l = 0; l < lanes; ++l) {
    Gradients& part = parts[static_cast<size_t>(l)];
    cuda::BatchNormBackward<T> op = backward(rows, l * lane, part);
    if (from_y) op.d_y = part.d_delta.data(), op.relu = false;  // masked already
    op.y = nullptr;
    op.d_delta = nullptr;
    op.d_beta = sums.data();
    op.d_gamma = sums.data() + channels;
    cuda::batch_norm_backward_input<T>(op, lanes, nullptr);
    for (int64_t i = 0; i < lane; ++i) {
      const double expected = to_float(whole.d_x[l * lane + i]);
      const auto c = static_cast<size_t>(i % channels);
      const double rstd =
          1 / std::sqrt(static_cast<double>(variance[static_cast<int64_t>(c)]) + kEpsilon);
      // Each of the two is rounded, perhaps to neighbours.
      EXPECT_NEAR(to_float(part.d_x[i]),
                  expected,
                  64 * kEps * rstd + test::kSpacing<T> * std::abs(expected))
          << "d_x" << where;
      if (from_y) {
        EXPECT_EQ(to_float(part.d_delta[i]), to_float(whole.d_delta[l * lane + i]));
      }
    }
    const std::vector<std::byte> more = test::bytes_of(part.d_x, part.d_variance);
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  return bytes;
}

TYPED_TEST(CudaBatchNormTest, LanesTogetherAreOneBatch) {
  for (const int64_t channels : {3, 16, 33}) {
    for (const auto& [residual, relu] : {std::pair(false, true), {true, true}, {true, false}}) {
      test::for_each_order([&](const std::string& order) {
        return check_lanes<TypeParam>(3, {37, channels, residual, relu}, order);
      });
    }
  }
  // More than one block of rows in a lane; more channels than a block has threads.
  check_lanes<TypeParam>(2, {2500, 8, true, true}, "forward");
  check_lanes<TypeParam>(5, {2, 300, false, true}, "forward");
}

// A running variance beyond FP16's range is infinity as it is stored; y is to follow x even so.
TYPED_TEST(CudaBatchNormTest, EvaluatesWithStatisticsBeyondTheRange) {
  using T = TypeParam;
  for (const int64_t channels : {5, 16}) {
    Guarded<T> x(channels), y(channels), gamma(channels), beta(channels), mean(channels),
        variance(channels);
    for (int64_t c = 0; c < channels; ++c) {
      x[c] = round_to<T>(500), gamma[c] = round_to<T>(1), beta[c] = round_to<T>(0.5f);
      mean[c] = round_to<T>(-12), variance[c] = round_to<T>(262144);
    }
    cuda::BatchNormForward<T, T> op{};
    op.rows = 1, op.channels = channels, op.epsilon = kEpsilon, op.x = x.data();
    op.gamma = gamma.data(), op.beta = beta.data(), op.mean = mean.data();
    op.variance = variance.data(), op.y = y.data();
    cuda::batch_norm_forward(op, nullptr);
    const double read = std::is_same_v<T, Float16> ? 65504 : 262144;
    const double expected = 512 / std::sqrt(read) + 0.5;
    for (int64_t c = 0; c < channels; ++c)
      EXPECT_NEAR(to_float(y[c]), expected, (16 * kEps + test::kSpacing<T> / 2) * expected);
    variance[1] = round_to<T>(NAN);
    cuda::batch_norm_forward(op, nullptr);
    EXPECT_TRUE(std::isnan(to_float(y[1]))) << "a NaN must not be hidden";
    EXPECT_FALSE(std::isnan(to_float(y[0])));
  }
}

// Statistics that are stored as T, as those of evaluation are.
TYPED_TEST(CudaBatchNormTest, EvaluatesWithStoredStatistics) {
  using T = TypeParam;
  for (const int64_t channels : {5, 16}) {
    const int64_t rows = 9;
    Guarded<T> x(rows * channels), y(rows * channels), gamma(channels), beta(channels),
        mean(channels), variance(channels);
    test::fill_stored(x, -2, 1, 1);
    test::fill_stored(gamma, 0.5, 1.5, 3);
    test::fill_stored(beta, -1, 1, 4);
    test::fill_stored(mean, -1, 1, 5);
    test::fill_stored(variance, 0.5, 2, 6);
    cuda::BatchNormForward<T, T> op{};
    op.rows = rows, op.channels = channels, op.epsilon = kEpsilon, op.x = x.data();
    op.gamma = gamma.data(), op.beta = beta.data(), op.mean = mean.data();
    op.variance = variance.data(), op.y = y.data();
    cuda::batch_norm_forward(op, nullptr);
    for (int64_t i = 0; i < rows * channels; ++i) {
      const int64_t c = i % channels;
      const double expected = (to_float(x[i]) - to_float(mean[c])) /
                                  std::sqrt(to_float(variance[c]) + kEpsilon) * to_float(gamma[c]) +
                              to_float(beta[c]);
      EXPECT_NEAR(to_float(y[i]), expected, 16 * kEps + test::kSpacing<T> / 2 * std::abs(expected));
    }
  }
}

}  // namespace
}  // namespace lockstep
