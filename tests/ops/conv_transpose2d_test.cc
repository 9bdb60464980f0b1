// Catches: images whose extents are exchanged on the way to conv2d's kernels, taps that write the
// wrong pixel with strides, dilation, padding and output padding, pixels that nothing reaches and
// that have no bias, groups that see each other, accumulation where there should be none.
#include "runtime/graph/ops/conv_transpose2d.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

// Calls body(x element, weight element, y element) for all products, from the definition: pixel (i,
// j) of x times tap (k, l) is added to pixel (i stride - padding + k dilation, ...) of y.
template <typename Body>
void for_each_product(const graph::Conv2dShape& s, Body&& body) {
  const int64_t height = s.out_height(), width = s.out_width(), inputs = s.outputs;
  const int64_t group_outputs = s.channels / s.groups;
  for (int64_t x = 0; x < s.batch * height * width * inputs; ++x) {
    const int64_t c = x % inputs, j = x / inputs % width, i = x / inputs / width % height,
                  image = x / inputs / width / height;
    for (int64_t k = 0; k < s.kernel_h; ++k) {
      for (int64_t l = 0; l < s.kernel_w; ++l) {
        const int64_t row = i * s.stride_h - s.pad_h + k * s.dilation_h;
        const int64_t column = j * s.stride_w - s.pad_w + l * s.dilation_w;
        if (row < 0 || row >= s.height || column < 0 || column >= s.width) continue;
        for (int64_t o = 0; o < group_outputs; ++o) {
          const int64_t channel = c / (inputs / s.groups) * group_outputs + o;
          body(x,
               ((c * s.kernel_h + k) * s.kernel_w + l) * group_outputs + o,
               ((image * s.height + row) * s.width + column) * s.channels + channel);
        }
      }
    }
  }
}

void reference_forward(const graph::OpCall& call) {
  const graph::ConvTranspose2dForward<double> op{call};
  const graph::Conv2dShape& s = op.shape;
  for (int64_t i = 0; i < s.pixels() * s.channels; ++i)
    op.y[i] = op.bias == nullptr ? 0 : op.bias[i % s.channels];
  for_each_product(s, [&](int64_t x, int64_t w, int64_t y) { op.y[y] += op.x[x] * op.weight[w]; });
}

void reference_backward(const graph::OpCall& call) {
  const graph::ConvTranspose2dBackward<double> op{call};
  const graph::Conv2dShape& s = op.shape;
  if (op.d_x != nullptr) std::fill_n(op.d_x, s.out_pixels() * s.outputs, 0.0);
  if (op.d_weight != nullptr && !op.accumulate_weight)
    std::fill_n(op.d_weight, s.outputs * s.patch(), 0.0);
  for_each_product(s, [&](int64_t x, int64_t w, int64_t y) {
    if (op.d_x != nullptr) op.d_x[x] += op.d_y[y] * op.weight[w];
    if (op.d_weight != nullptr) op.d_weight[w] += op.d_y[y] * op.x[x];
  });
  if (op.d_bias == nullptr) return;
  if (!op.accumulate_bias) std::fill_n(op.d_bias, s.channels, 0.0);
  for (int64_t i = 0; i < s.pixels() * s.channels; ++i) op.d_bias[i % s.channels] += op.d_y[i];
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kConvTranspose2d, "double", reference_forward},
    {graph::OpKind::kConvTranspose2dBackward, "double", reference_backward},
};

// Of a sum of n products below 1, as of conv2d.
double sum_error(int64_t n) { return 16 + 0.5 * static_cast<double>(n); }

Tolerance tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t i) {
  if (expected.kind() == graph::OpKind::kConvTranspose2d) {
    const graph::ConvTranspose2dForward<double> op{expected};
    const graph::Conv2dShape& s = op.shape;
    // Stored before the bias, which is below 1, and again with it.
    return {sum_error(s.kernel_h * s.kernel_w * s.group_outputs() + 1), 2 * std::abs(op.y[i]) + 2};
  }
  const graph::ConvTranspose2dBackward<double> op{expected};
  if (output == graph::ConvTranspose2dBackwardOut::kDX)
    return {sum_error(op.shape.patch()), std::abs(op.d_x[i])};
  return {sum_error(op.shape.pixels() + 1), 0};
}

// Extents as of x; the convolution's attributes, and the rows and columns that y has more than it
// needs.
struct Case {
  int64_t batch, height, width, inputs, outputs, kernel, stride, padding, dilation, groups, more;
};

OpTest conv_transpose(const Case& c, bool bias) {
  const auto extent = [&](int64_t from) {
    return (from - 1) * c.stride - 2 * c.padding + c.dilation * (c.kernel - 1) + 1 + c.more;
  };
  const graph::Extent2d output = {extent(c.height), extent(c.width)};
  return {.name = "conv_transpose2d of " + std::to_string(c.height) + " x " +
                  std::to_string(c.width) + " to " + std::to_string(output.height) + " x " +
                  std::to_string(output.width) + ", kernel " + std::to_string(c.kernel) +
                  ", groups " + std::to_string(c.groups),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId x =
                    builder.activation_tensor("x", {c.batch, c.height, c.width, c.inputs});
                const TensorId weight = builder.parameter(
                    "weight", {c.inputs, c.kernel, c.kernel, c.outputs / c.groups}, {}, false);
                ops::conv_transpose2d(
                    builder,
                    "y",
                    x,
                    weight,
                    bias ? builder.parameter("bias", {c.outputs}, {}, false) : kNoTensor,
                    {.stride = {c.stride, c.stride},
                     .padding = {c.padding, c.padding},
                     .dilation = {c.dilation, c.dilation},
                     .groups = c.groups},
                    output);
              },
          .reference = kReference,
          .cpu = cpu::kCpuConvTranspose2d,
          .cuda = cuda::kCudaConvTranspose2d,
          .tolerance = tolerance};
}

const Case kCases[] = {
    {2, 4, 5, 3, 7, 2, 2, 0, 1, 1, 0},
    {2, 5, 4, 8, 16, 3, 2, 1, 1, 1, 1},
    {1, 6, 6, 16, 8, 3, 1, 1, 1, 1, 0},
    {2, 3, 4, 4, 6, 3, 3, 0, 2, 2, 2},
    {1, 5, 5, 6, 6, 4, 2, 1, 1, 6, 0},
    {2, 4, 4, 9, 11, 1, 1, 0, 1, 1, 0},
    {1, 3, 3, 5, 10, 2, 3, 0, 1, 5, 0},
    {1, 7, 6, 40, 33, 4, 2, 1, 1, 1, 0},
};

TEST(ConvTranspose2dTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(conv_transpose({2, 3, 2, 2, 3, 3, 2, 1, 1, 1, 1}, true));
  check_gradient_of_reference(conv_transpose({1, 2, 3, 4, 2, 2, 1, 0, 2, 2, 0}, true));
}

TEST(ConvTranspose2dTest, MatchesTheReferenceOnAllDevices) {
  for (const Case& c : kCases) {
    check_on_all_devices(conv_transpose(c, true));
    check_on_all_devices(conv_transpose(c, false));
  }
}

TEST(ConvTranspose2dTest, MatchesTheReferenceWithThreeBfloat16Numbers) {
  OpTest test = conv_transpose({2, 5, 7, 64, 32, 3, 2, 1, 1, 1, 1}, true);
  test.cuda = {};
  test.bf16x3 = true;
  check_on_all_devices(test);
}

TEST(ConvTranspose2dTest, HasNoGradientOfAFrozenWeight) {
  OpTest test = conv_transpose(kCases[1], true);
  test.name += ", frozen";
  test.build = [build = test.build](graph::GraphBuilder& builder) {
    build(builder);
    builder[builder.graph().parameters[0]].frozen = true;
  };
  check_on_all_devices(test);
}

// Adds to the gradients of a weight and a bias that stand in the graph twice.
TEST(ConvTranspose2dTest, AddsToGradients) {
  OpTest test = conv_transpose(kCases[1], true);
  test.name += ", adding";
  test.gradients = 0;
  test.build = [build = test.build](graph::GraphBuilder& builder) {
    build(builder);
    const graph::Op forward = builder.graph().ops.back();
    const TensorId d_weight = builder.statistics_tensor(
        "d_weight", builder.shape(forward.inputs[graph::ConvTranspose2dIn::kWeight]));
    builder.append(
        {graph::OpKind::kConvTranspose2dBackward,
         "backward",
         {builder.activation_tensor("d_y",
                                    builder.shape(forward.outputs[graph::ConvTranspose2dOut::kY])),
          forward.inputs[graph::ConvTranspose2dIn::kX],
          forward.inputs[graph::ConvTranspose2dIn::kWeight]},
         {kNoTensor,
          d_weight,
          builder.statistics_tensor(
              "d_bias", builder.shape(forward.inputs[graph::ConvTranspose2dIn::kBias]))},
         graph::Conv2dBackwardAttributes{forward.as<graph::Conv2dAttributes>(), true, true}});
    builder.keep(d_weight);
  };
  check_on_all_devices(test);
}

}  // namespace
}  // namespace lockstep::test
