// Catches: taps, pixels, channels or groups that are mixed up, padding that is not zero, products
// lost at the borders of tiles and slices, a missing barrier, sums that depend on the order of
// threads, gradients added where they should replace and the reverse, writes outside an array.

#include "runtime/cuda/conv2d/conv2d.h"

#include "tests/fibers/kernel_test.h"
#include "tests/reference/conv2d.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

struct Case {
  Conv2dShape shape;
  bool bias = false, accumulate = false;
  int64_t offset = 0;  // of all arrays, in elements from a multiple of 64 bytes
};

// A sum of products is off by as much as all its terms rounded, and by its own rounding to T.
template <typename T>
std::vector<std::byte> check(const Case& at, const std::string& order) {
  const Conv2dShape& s = at.shape;
  const int64_t in = s.pixels() * s.channels, out = s.out_pixels() * s.outputs,
                weights = s.outputs * s.patch();
  Guarded<T> x(in, at.offset), w(weights, at.offset), bias(s.outputs, at.offset);
  Guarded<T> y(out, at.offset), d_y(out, at.offset), d_x(in, at.offset);
  Guarded<float> d_w(weights, 1),
      workspace(static_cast<int64_t>(cuda::conv2d_workspace_bytes(s) / sizeof(float)));
  test::fill_stored(x, -1, 1, 1);
  test::fill_stored(w, -1, 1, 2);
  test::fill_stored(bias, -1, 1, 3);
  test::fill_stored(d_y, -1, 1, 4);
  test::fill_uniform(d_w, -1, 1, 5);
  test::Conv2dReference reference{.shape = s,
                                  .activation = Activation::kNone,
                                  .x = test::as_doubles(x),
                                  .w = test::as_doubles(w)};
  if (at.bias) reference.bias = test::as_doubles(bias);
  reference.forward();
  reference.backward(test::as_doubles(d_y));
  for (int64_t i = 0; at.accumulate && i < weights; ++i) reference.d_w[i] += d_w[i];
  cuda::conv2d_forward<T>(
      s, x.data(), w.data(), at.bias ? bias.data() : nullptr, y.data(), nullptr);
  cuda::conv2d_backward_input<T>(s, d_y.data(), w.data(), d_x.data(), nullptr);
  cuda::conv2d_backward_weight<T>(
      s, d_y.data(), x.data(), at.accumulate, d_w.data(), workspace.data(), nullptr);
  const auto close = [&](const auto& got,
                         const std::vector<double>& expected,
                         const std::vector<double>& magnitude,
                         double spacing,
                         const std::string& what) {
    test::expect_close(
        got,
        expected,
        [&](int64_t i) {
          const auto at = static_cast<size_t>(i);
          return 16 * kEps * (1 + magnitude[at]) + spacing / 2 * std::abs(expected[at]);
        },
        what + " " + order);
  };
  close(test::as_doubles(y), reference.y, reference.magnitude, test::kSpacing<T>, "y");
  close(test::as_doubles(d_x), reference.d_x, reference.d_x_magnitude, test::kSpacing<T>, "d_x");
  close(d_w, reference.d_w, reference.d_w_magnitude, 0, "d_w");
  return test::bytes_of(y, d_x, d_w);
}

template <typename T>
class CudaConv2dTest : public ::testing::Test {};
TYPED_TEST_SUITE(CudaConv2dTest, test::StoredTypes);

TYPED_TEST(CudaConv2dTest, MatchesDoublePrecisionInAnyOrder) {
  const auto all_orders = [](const Case& at) {
    test::for_each_order([&](const std::string& order) { return check<TypeParam>(at, order); });
  };
  // 3x3, padded: whole vectors of channels, several tiles of pixels.
  all_orders({{.batch = 2,
               .height = 8,
               .width = 9,
               .channels = 8,
               .outputs = 12,
               .kernel_h = 3,
               .kernel_w = 3,
               .pad_h = 1,
               .pad_w = 1}});
  // The first layer of a network: three channels, a large kernel, stride 2, and a bias.
  all_orders({{.batch = 2,
               .height = 13,
               .width = 11,
               .channels = 3,
               .outputs = 10,
               .kernel_h = 7,
               .kernel_w = 7,
               .stride_h = 2,
               .stride_w = 2,
               .pad_h = 3,
               .pad_w = 3},
              true});
  // 1x1 with stride 2: pixels that no output sees; more outputs than a tile.
  all_orders({{.batch = 1,
               .height = 7,
               .width = 6,
               .channels = 16,
               .outputs = 72,
               .kernel_h = 1,
               .kernel_w = 1,
               .stride_h = 2,
               .stride_w = 2},
              false,
              true});
  // Groups, dilation, unequal everything.
  all_orders({{.batch = 2,
               .height = 9,
               .width = 10,
               .channels = 8,
               .outputs = 16,
               .kernel_h = 3,
               .kernel_w = 2,
               .stride_h = 1,
               .stride_w = 2,
               .pad_h = 2,
               .pad_w = 1,
               .dilation_h = 2,
               .dilation_w = 3,
               .groups = 2},
              true});
  // Depthwise, with two outputs for each channel.
  all_orders({{.batch = 1,
               .height = 6,
               .width = 5,
               .channels = 5,
               .outputs = 10,
               .kernel_h = 3,
               .kernel_w = 3,
               .pad_h = 1,
               .pad_w = 1,
               .groups = 5}});
  // No array begins where vectors may.
  all_orders({{.batch = 1,
               .height = 5,
               .width = 5,
               .channels = 8,
               .outputs = 8,
               .kernel_h = 3,
               .kernel_w = 3},
              true,
              false,
              1});
}

// Pixels enough for several slices of the gradient of the weights, the last one short; all of one
// group, of two, and of each channel.
TYPED_TEST(CudaConv2dTest, SlicesOfTheProductsAddUp) {
  for (const int64_t groups : {1, 2, 4}) {
    const Conv2dShape shape = {.batch = 3,
                               .height = 19,
                               .width = 17,
                               .channels = 4,
                               .outputs = 4,
                               .kernel_h = 3,
                               .kernel_w = 3,
                               .pad_h = 1,
                               .pad_w = 1,
                               .groups = groups};
    ASSERT_GT(cuda::conv2d_workspace_bytes(shape),
              3 * sizeof(float) * static_cast<size_t>(shape.outputs * shape.patch()));
    for (const bool accumulate : {false, true})
      test::for_each_order([&](const std::string& order) {
        return check<TypeParam>({shape, false, accumulate}, order);
      });
  }
}

TYPED_TEST(CudaConv2dTest, AddsABias) {
  using T = TypeParam;
  for (const int64_t channels : {3, 16}) {
    const int64_t rows = 37;
    Guarded<T> bias(channels), y(rows * channels);
    test::fill_stored(bias, -1, 1, 1);
    test::fill_stored(y, -1, 1, 2);
    const std::vector<T> before = y.copy();
    cuda::add_bias<T>(bias.data(), rows, channels, y.data(), nullptr);
    for (int64_t i = 0; i < y.size(); ++i)
      EXPECT_EQ(to_float(y[i]),
                to_float(round_to<T>(to_float(before[static_cast<size_t>(i)]) +
                                     to_float(bias[i % channels]))));
  }
}

const Conv2dShape kOnePixel = {
    .batch = 1, .height = 1, .width = 1, .channels = 1, .outputs = 1, .kernel_h = 1, .kernel_w = 1};

TEST(CudaConv2dShapeTest, WhatDoesNotFitIntoThirtyOneBitsIsRefused) {
  Conv2dShape shape = {.batch = 256,
                       .height = 224,
                       .width = 224,
                       .channels = 3,
                       .outputs = 64,
                       .kernel_h = 7,
                       .kernel_w = 7};
  EXPECT_TRUE(cuda::conv2d_supports(shape));
  shape.batch = 65536;
  EXPECT_FALSE(cuda::conv2d_supports(shape));
  // Pixels of the output alone, and weights alone.
  shape = kOnePixel;
  shape.batch = 2;
  EXPECT_TRUE(cuda::conv2d_supports(shape));
  shape.pad_h = shape.pad_w = 20000;
  EXPECT_FALSE(cuda::conv2d_supports(shape));
  shape.pad_h = shape.pad_w = 0;
  shape.channels = shape.outputs = 65536;
  EXPECT_FALSE(cuda::conv2d_supports(shape));
}

// A grid has at most 65535 tiles in its second and third dimension.
TEST(CudaConv2dShapeTest, WhatDoesNotFitIntoAGridIsRefused) {
  const int64_t most = 65535;
  Conv2dShape shape = kOnePixel;
  const auto supported = [&](int64_t channels, int64_t outputs, int64_t groups) {
    shape.channels = channels, shape.outputs = outputs, shape.groups = groups;
    return cuda::conv2d_supports(shape);
  };
  EXPECT_TRUE(supported(64 * most - 1, 1, 1));
  EXPECT_FALSE(supported(64 * most + 1, 1, 1)) << "tiles of a patch";
  EXPECT_TRUE(supported(1, 64 * most - 1, 1));
  EXPECT_FALSE(supported(1, 64 * most + 1, 1)) << "tiles of outputs";
  EXPECT_TRUE(supported(most, most, most));
  EXPECT_FALSE(supported(most + 1, most + 1, most + 1)) << "groups";
}

}  // namespace
}  // namespace lockstep
