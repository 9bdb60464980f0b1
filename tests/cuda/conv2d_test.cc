// Catches: shapes that the own convolutions for CUDA take though they do not fit. (Everything else
// of the op: tests/ops/conv2d_test.cc.)

#include "runtime/cuda/conv2d/conv2d.h"

#include <gtest/gtest.h>

namespace lockstep::test {
namespace {

const graph::Conv2dShape kOnePixel = {
    .batch = 1, .height = 1, .width = 1, .channels = 1, .outputs = 1, .kernel_h = 1, .kernel_w = 1};

TEST(CudaConv2dShapeTest, WhatDoesNotFitIntoThirtyOneBitsIsRefused) {
  graph::Conv2dShape shape = {.batch = 256,
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

// A grid has 2^31 - 1 blocks in its first dimension, which number the rows' tiles of all groups;
// those of columns may be any number.
TEST(CudaConv2dShapeTest, WhatDoesNotFitIntoAGridIsRefused) {
  const int64_t many = 65536;
  graph::Conv2dShape shape = kOnePixel;
  const auto supported = [&](int64_t channels, int64_t outputs, int64_t groups) {
    shape.channels = channels, shape.outputs = outputs, shape.groups = groups;
    return cuda::conv2d_supports(shape);
  };
  EXPECT_TRUE(supported(64 * many + 1, 1, 1)) << "tiles of a patch";
  EXPECT_TRUE(supported(1, 64 * many + 1, 1)) << "tiles of outputs";
  EXPECT_TRUE(supported(many, many, many)) << "groups";
  shape.batch = int64_t{64} * 33'000'000;
  EXPECT_TRUE(supported(65, 65, 65));
  EXPECT_FALSE(supported(66, 66, 66)) << "tiles of pixels, of all groups";
}

}  // namespace
}  // namespace lockstep::test
