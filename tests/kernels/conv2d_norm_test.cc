// Convolutions that end in a batch norm and a shortcut. Catches: a norm or a shortcut that rounds
// otherwise than an op of its own, on one of the ways to compute a convolution.

#include <gtest/gtest.h>

#include <tuple>
#include <utility>

#include "runtime/cpu/ops/batch_norm.h"
#include "tests/kernels/conv2d_cases.h"

namespace lockstep::cpu {
namespace {

// A batch norm and a shortcut behind a convolution.
struct Norm {
  explicit Norm(const graph::Conv2dShape& s)
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
  Epilogue<float> epilogue(const float* conv_bias, bool with_delta, bool relu) const {
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
    const graph::BatchNormForward<float> op = {
        .rows = rows,
        .channels = channels,
        .lanes = 0,
        .epsilon = kEpsilon,
        .relu = relu,
        .x = x.data(),
        .delta = with_delta ? delta.data() : nullptr,
        .gamma = gamma.data(),
        .beta = beta.data(),
        .y = x.data(),
        .workspace = reinterpret_cast<float*>(workspace.data())};
    batch_norm_apply(op, mean.data(), variance.data());
    return x;
  }

  static constexpr float kEpsilon = 1e-5f;

  int64_t channels, rows;
  Guarded<float> gamma, beta, mean, variance, scale, delta;
};

TEST(Conv2d, NormAndShortcutHaveTheBitsOfOpsOfTheirOwn) {
  for (const graph::Conv2dShape& s : conv2d_shapes()) {
    ConvInputs in(s);
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
