// Convolutions that end in a batch norm and a shortcut. Would catch: a norm or a shortcut that
// takes another channel's or pixel's values, that is applied to a partial sum or twice, left out on
// one of the ways to compute a convolution, or that rounds otherwise than an op of its own; a bias
// added behind the norm.

#include <gtest/gtest.h>

#include <tuple>
#include <utility>

#include "runtime/cpu/ops/batch_norm.h"
#include "tests/kernels/conv2d_cases.h"
#include "tests/reference/batch_norm.h"

namespace lockstep::cpu {
namespace {

// A batch norm and a shortcut behind a convolution.
struct Norm {
  explicit Norm(const Conv2dShape& s)
      : channels(s.outputs),
        rows(s.out_pixels()),
        gamma(channels, 1),
        beta(channels, 2),
        mean(channels, 3),
        variance(channels),
        scale(channels, 1),
        delta(rows * channels, 2) {
    test::fill_uniform(gamma, 0.5, 1.5, 21);
    test::fill_uniform(beta, -1, 1, 22);
    test::fill_uniform(mean, -1, 1, 23);
    test::fill_uniform(variance, 0.25, 2, 24);
    test::fill_uniform(delta, -1, 1, 25);
    batch_norm_scale(channels, gamma.data(), variance.data(), kEpsilon, scale.data());
  }
  Epilogue epilogue(const float* conv_bias, bool with_delta, bool relu) const {
    return {.bias = conv_bias,
            .mean = mean.data(),
            .scale = scale.data(),
            .shift = beta.data(),
            .residual = with_delta ? delta.data() : nullptr,
            .activation = relu ? Activation::kRelu : Activation::kNone};
  }
  // As an op of its own.
  std::vector<float> forward(std::vector<float> x, bool with_delta, bool relu) {
    Guarded<std::byte> workspace(static_cast<int64_t>(BatchNormWorkspace::bytes(rows, channels)));
    BatchNormForward<float> op{};
    op.rows = rows;
    op.channels = channels;
    op.epsilon = kEpsilon;
    op.relu = relu;
    op.x = x.data();
    op.delta = with_delta ? delta.data() : nullptr;
    op.gamma = gamma.data();
    op.beta = beta.data();
    op.y = x.data();
    op.workspace = reinterpret_cast<float*>(workspace.data());
    batch_norm_apply(op, mean.data(), variance.data());
    return x;
  }

  static constexpr float kEpsilon = 1e-5f;
  static constexpr double kMostScale = 3;  // 1.5 / sqrt(0.25)

  int64_t channels, rows;
  Guarded<float> gamma, beta, mean, variance, scale, delta;
};

TEST(Conv2d, NormAndShortcutAreClose) {
  for (const Conv2dShape& s : shapes()) {
    Inputs in(s);
    const Norm norm(s);
    const int64_t depth = s.kernel_h * s.kernel_w * s.group_channels();
    for (const auto& [with_delta, relu] : {std::pair(false, false), {false, true}, {true, true}}) {
      const bool with_bias = with_delta != relu;
      const auto conv = reference(s, in, with_bias, Activation::kNone);
      const std::vector<double> expected =
          test::batch_norm_output(conv.y,
                                  with_delta ? test::to_double(norm.delta) : std::vector<double>(),
                                  test::to_double(norm.gamma),
                                  test::to_double(norm.beta),
                                  test::to_double(norm.mean),
                                  test::to_double(norm.variance),
                                  Norm::kEpsilon,
                                  relu);
      // The sum's own error (see ForwardIsClose) grows with the scale, and each step of the norm
      // rounds a value of this size once more.
      const auto tolerance = [&](int64_t i) {
        return (0.5 * (depth + 1) + 8) * kEps * (Norm::kMostScale * (conv.magnitude[i] + 2) + 2);
      };
      test::for_each_target([&](const std::string& target) {
        const std::vector<float> y =
            forward(s, in, norm.epilogue(with_bias ? in.bias.data() : nullptr, with_delta, relu));
        test::expect_close(y, expected, tolerance, "y of " + describe(s) + " on " + target);
      });
    }
  }
}

TEST(Conv2d, NormAndShortcutHaveTheBitsOfOpsOfTheirOwn) {
  for (const Conv2dShape& s : shapes()) {
    Inputs in(s);
    Norm norm(s);
    for (const auto& [with_bias, with_delta, relu] :
         {std::tuple(true, false, false), {false, true, true}, {true, true, true}}) {
      const float* const bias = with_bias ? in.bias.data() : nullptr;
      test::for_each_target([&](const std::string& target) {
        const std::vector<float> apart =
            norm.forward(forward(s, in, {.bias = bias}), with_delta, relu);
        test::expect_reproducible<float>(
            [&] { return forward(s, in, norm.epilogue(bias, with_delta, relu)); }, describe(s));
        test::expect_same_bits(forward(s, in, norm.epilogue(bias, with_delta, relu)),
                               apart,
                               describe(s) + " on " + target);
      });
    }
  }
}

}  // namespace
}  // namespace lockstep::cpu
