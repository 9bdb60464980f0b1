// Catches: taps that read the wrong pixel at borders, with strides or with dilation; padding that
// is not zero, or taken from a neighbouring row or image; channels or groups that see each other; a
// bias, activation, norm or shortcut applied to a partial sum, to the wrong channel, twice or not
// at all; products lost at the borders of tiles and slices; outputs that depend on the threads or
// on the vector width; accumulation where there should be none; pixels that no output sees left
// unwritten.
#include "runtime/graph/ops/conv2d.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"
#include "tests/reference/activations.h"
#include "tests/reference/conv2d.h"
#include "tests/reference/conv2d_shapes.h"

namespace lockstep::test {
namespace {

// ---- The references ----

void add_products(const graph::Conv2dShape& s,
                  const double* x,
                  const double* weight,
                  const double* bias,
                  double* y) {
  for (int64_t i = 0; i < s.out_pixels() * s.outputs; ++i)
    y[i] = bias == nullptr ? 0 : bias[i % s.outputs];
  const int64_t depth = s.group_channels();
  for_each_tap(s, [=](int64_t out, int64_t in, int64_t tap) {
    double sum = y[out];
    for (int64_t c = 0; c < depth; ++c) sum += x[in + c] * weight[tap + c];
    y[out] = sum;
  });
}

void reference_forward(const graph::OpCall& call) {
  const graph::Conv2dForward<double> op{call};
  add_products(op.shape, op.x, op.weight, op.bias, op.y);
  for (int64_t i = 0; i < op.shape.out_pixels() * op.shape.outputs; ++i)
    op.y[i] = activation_value(op.activation, op.y[i]);
}

void reference_batch_norm(const graph::OpCall& call) {
  const graph::Conv2dBatchNormForward<double> op{call};
  const int64_t outputs = op.shape.outputs;
  add_products(op.shape, op.x, op.weight, op.bias, op.y);
  for (int64_t i = 0; i < op.shape.out_pixels() * outputs; ++i) {
    const int64_t c = i % outputs;
    const double scale = op.gamma[c] / std::sqrt(op.running_variance[c] + op.epsilon);
    const double y = (op.y[i] - op.running_mean[c]) * scale + op.beta[c];
    op.y[i] = activation_value(op.activation, y + (op.delta == nullptr ? 0 : op.delta[i]));
  }
}

void reference_backward(const graph::OpCall& call) {
  const graph::Conv2dBackward<double> op{call};
  const graph::Conv2dShape& s = op.shape;
  if (op.d_x != nullptr) std::fill_n(op.d_x, s.pixels() * s.channels, 0.0);
  if (op.d_weight != nullptr && !op.accumulate_weight)
    std::fill_n(op.d_weight, s.outputs * s.patch(), 0.0);
  const int64_t depth = s.group_channels();
  for_each_tap(s, [&](int64_t out, int64_t in, int64_t tap) {
    const double d_y = op.d_y[out];
    if (op.d_x != nullptr) {
      double* const d_x = op.d_x + in;
      const double* const weight = op.weight + tap;
      for (int64_t c = 0; c < depth; ++c) d_x[c] += d_y * weight[c];
    }
    if (op.d_weight != nullptr) {
      double* const d_weight = op.d_weight + tap;
      const double* const x = op.x + in;
      for (int64_t c = 0; c < depth; ++c) d_weight[c] += d_y * x[c];
    }
  });
  if (op.d_bias == nullptr) return;
  if (!op.accumulate_bias) std::fill_n(op.d_bias, s.outputs, 0.0);
  for (int64_t i = 0; i < s.out_pixels() * s.outputs; ++i) op.d_bias[i % s.outputs] += op.d_y[i];
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kConv2d, "double", reference_forward},
    {graph::OpKind::kConv2dBackward, "double", reference_backward},
    {graph::OpKind::kConv2dBatchNorm, "double", reference_batch_norm},
    {graph::OpKind::kActivationBackward, "double", activation_backward_reference},
};

// Of a sum of n products below 1: the partial sums of terms of either sign stay below sqrt(n) by
// far, as their n roundings do below sqrt(n) of one. Short sums by Winograd's transforms have some
// roundings more.
double sum_error(int64_t n) { return 16 + 0.5 * static_cast<double>(n); }

constexpr double kMaxScale = 3;  // of the norms below: 1.5 / sqrt(0.25)

Tolerance tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t i) {
  switch (expected.kind()) {
    case graph::OpKind::kConv2d: {
      const graph::Conv2dForward<double> op{expected};
      // The sum and its bias, below 1, may be stored before the activation, which is no steeper
      // than 1 and bends where it is below 1.
      return {sum_error(op.shape.patch() + 1), 2 * std::abs(op.y[i]) + 2};
    }
    case graph::OpKind::kConv2dBatchNorm: {
      const graph::Conv2dBatchNormForward<double> op{expected};
      return {kMaxScale * sum_error(op.shape.patch() + 1) + 4 * std::abs(op.y[i]),
              std::abs(op.y[i])};
    }
    default: {
      const graph::Conv2dBackward<double> op{expected};
      const graph::Conv2dShape& s = op.shape;
      if (output == graph::Conv2dBackwardOut::kDX)
        return {sum_error(s.kernel_h * s.kernel_w * s.group_outputs()), std::abs(op.d_x[i])};
      const double floats = sum_error(s.out_pixels() + 1);
      if (output == graph::Conv2dBackwardOut::kDBias) return {floats, 0};
      return {floats, std::abs(op.d_weight[i]) + 1};  // cuDNN may store it narrow
    }
  }
}

// ---- The tests ----

graph::Conv2dAttributes attributes_of(const graph::Conv2dShape& s, Activation activation) {
  return {.stride = {s.stride_h, s.stride_w},
          .padding = {s.pad_h, s.pad_w},
          .dilation = {s.dilation_h, s.dilation_w},
          .groups = s.groups,
          .activation = activation};
}

Shape x_of(const graph::Conv2dShape& s) { return {s.batch, s.height, s.width, s.channels}; }
Shape weight_of(const graph::Conv2dShape& s) {
  return {s.outputs, s.kernel_h, s.kernel_w, s.group_channels()};
}
Shape y_of(const graph::Conv2dShape& s) {
  return {s.batch, s.out_height(), s.out_width(), s.outputs};
}

OpTest conv2d(const graph::Conv2dShape& s, bool bias, Activation activation) {
  return {.name = describe(s) + (bias ? " with bias" : "") + ", activation " +
                  std::to_string(static_cast<int>(activation)),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId x = builder.activation_tensor("x", x_of(s));
                const TensorId weight = builder.parameter("weight", weight_of(s), {}, false);
                ops::conv2d(builder,
                            "y",
                            x,
                            weight,
                            bias ? builder.parameter("bias", {s.outputs}, {}, false) : kNoTensor,
                            attributes_of(s, activation));
              },
          .reference = kReference,
          .cpu = cpu::kCpuConv2d,
          .cuda = cuda::kCudaConv2d,
          .tolerance = tolerance};
}

// Adds to the gradients, or has none of the input.
OpTest backward(const graph::Conv2dShape& s, bool d_x, bool accumulate) {
  OpTest test = conv2d(s, true, Activation::kNone);
  test.name += ", backward";
  test.gradients = 0;
  test.build = [=](graph::GraphBuilder& builder) {
    const TensorId d_weight = builder.statistics_tensor("d_weight", weight_of(s));
    builder.append({graph::OpKind::kConv2dBackward,
                    "conv2d",
                    {builder.activation_tensor("d_y", y_of(s)),
                     builder.activation_tensor("x", x_of(s)),
                     builder.activation_tensor("weight", weight_of(s))},
                    {d_x ? builder.activation_tensor("d_x", x_of(s)) : kNoTensor,
                     d_weight,
                     builder.statistics_tensor("d_bias", {s.outputs})},
                    graph::Conv2dBackwardAttributes{
                        attributes_of(s, Activation::kNone), accumulate, accumulate}});
    builder.keep(d_weight);
  };
  return test;
}

// A norm and a shortcut behind it.
OpTest with_norm(const graph::Conv2dShape& s, bool bias, bool delta, Activation activation) {
  OpTest test = conv2d(s, bias, Activation::kNone);
  test.name += ", norm, activation " + std::to_string(static_cast<int>(activation));
  test.gradients = 0;
  test.cuda = {};
  test.value = [](const std::string& tensor, int64_t i) {
    // In no order, from -1 to 1.
    const double large = 43758.5453 * std::sin(12.9898 * static_cast<double>(i + tensor[0]));
    const double value = 2 * (large - std::floor(large)) - 1;
    if (tensor == "gamma") return 1 + 0.5 * value;
    return tensor == "variance" ? 1.125 + 0.875 * value : value;
  };
  test.build = [=](graph::GraphBuilder& builder) {
    const auto channels = [&](const char* name) {
      return builder.activation_tensor(name, {s.outputs});
    };
    const TensorId y = builder.activation_tensor("y", y_of(s));
    builder.append(
        {graph::OpKind::kConv2dBatchNorm,
         "conv2d",
         {builder.activation_tensor("x", x_of(s)),
          builder.activation_tensor("weight", weight_of(s)),
          bias ? channels("bias") : kNoTensor,
          channels("gamma"),
          channels("beta"),
          channels("mean"),
          channels("variance"),
          delta ? builder.activation_tensor("delta", y_of(s)) : kNoTensor},
         {y},
         graph::Conv2dBatchNormAttributes{.conv = attributes_of(s, Activation::kNone),
                                          .norm = {.epsilon = 1e-5f, .activation = activation}}});
    builder.keep(y);
  };
  return test;
}

OpTest on_the_cpu(OpTest test, bool bf16x3 = false) {
  test.cuda = {};
  test.bf16x3 = bf16x3;
  return test;
}

TEST(Conv2dTest, ReferenceMatchesFiniteDifferences) {
  for (const graph::Conv2dShape& s :
       {square(2, 4, 2, 3, 3, 2, 1), square(1, 5, 4, 2, 2, 1, 0, 2, 2)}) {
    check_gradient_of_reference(conv2d(s, true, Activation::kNone));
    check_gradient_of_reference(conv2d(s, true, Activation::kTanh));
  }
}

TEST(Conv2dTest, MatchesTheReferenceOnTheCpu) {
  for (const graph::Conv2dShape& s : conv2d_shapes()) {
    if (s.out_pixels() == 0) continue;
    check_on_all_devices(on_the_cpu(conv2d(s, true, Activation::kTanh)));
    check_on_all_devices(on_the_cpu(backward(s, true, true)));
  }
}

TEST(Conv2dTest, MatchesTheReferenceWithThreeBfloat16Numbers) {
  for (const graph::Conv2dShape& s : bf16x3_conv2d_shapes()) {
    if (s.out_pixels() == 0) continue;
    OpTest forward = on_the_cpu(conv2d(s, true, Activation::kRelu), true);
    forward.gradients = 0;
    check_on_all_devices(forward);
    check_on_all_devices(on_the_cpu(backward(s, true, s.stride_h == 1), true));
  }
}

TEST(Conv2dTest, NormAndShortcutMatchTheReference) {
  for (const graph::Conv2dShape& s : conv2d_shapes()) {
    if (s.out_pixels() == 0) continue;
    check_on_all_devices(with_norm(s, true, false, Activation::kNone));
    check_on_all_devices(with_norm(s, false, true, Activation::kRelu));
  }
  for (const graph::Conv2dShape& s : {square(3, 7, 64, 33, 1), square(1, 9, 32, 96, 3, 1, 1)})
    check_on_all_devices(on_the_cpu(with_norm(s, true, true, Activation::kRelu), true));
}

// For CUDA: whole vectors of channels and several tiles of pixels; the first layer of a network; a
// linear layer of the pixels, of channels that come in eights and not; pixels that no output sees
// and more outputs than a tile; groups, dilation and unequal everything; each channel alone, with
// two outputs.
const std::vector<graph::Conv2dShape>& shapes_of_all_devices() {
  static const std::vector<graph::Conv2dShape> all = {
      shape(2, 8, 9, 8, 12, 3, 3, 1, 1, 1, 1),
      shape(2, 13, 11, 3, 10, 7, 7, 2, 2, 3, 3),
      square(2, 5, 16, 24, 1),
      square(2, 5, 9, 11, 1),
      shape(1, 7, 6, 16, 72, 1, 1, 2, 2),
      shape(2, 9, 10, 8, 16, 3, 2, 1, 2, 2, 1, 2, 3, 2),
      shape(1, 6, 5, 5, 10, 3, 3, 1, 1, 1, 1, 1, 1, 5),
  };
  return all;
}

TEST(Conv2dTest, MatchesTheReferenceOnAllDevices) {
  for (const graph::Conv2dShape& s : shapes_of_all_devices()) {
    check_on_all_devices(conv2d(s, false, Activation::kNone));
    check_on_all_devices(conv2d(s, true, Activation::kRelu));
  }
  check_on_all_devices(conv2d(shapes_of_all_devices()[0], false, Activation::kRelu6));
  check_on_all_devices(conv2d(shapes_of_all_devices()[1], true, Activation::kTanh));
}

TEST(Conv2dTest, AddsToGradients) {
  for (const graph::Conv2dShape& s : shapes_of_all_devices())
    check_on_all_devices(backward(s, true, true));
}

TEST(Conv2dTest, HasNoGradientOfAFrozenWeight) {
  for (const bool bias : {false, true}) {
    OpTest test = conv2d(square(2, 5, 3, 7, 3, 2, 1), bias, Activation::kNone);
    test.name += ", frozen";
    test.build = [build = test.build](graph::GraphBuilder& builder) {
      build(builder);
      builder[builder.graph().parameters[0]].frozen = true;
    };
    check_on_all_devices(test);
  }
}

TEST(Conv2dTest, HasNoGradientOfInputsThatNeedNone) {
  check_on_all_devices(backward(square(2, 5, 3, 7, 3, 2, 1), false, false));
}

// Pixels enough for several slices of CUDA's gradient of the weights, the last one short; all of
// one group, of two, and of each channel.
TEST(Conv2dTest, SlicesOfTheProductsAddUp) {
  for (const int64_t groups : {1, 2, 4}) {
    for (const bool accumulate : {false, true})
      check_on_all_devices(
          backward(shape(3, 19, 17, 4, 4, 3, 3, 1, 1, 1, 1, 1, 1, groups), true, accumulate));
  }
}

}  // namespace
}  // namespace lockstep::test
