// Catches: outputs of convolutions with the products of bf16x3.h that depend on the other images;
// shapes that they should, or should not, take. (Everything else of the op:
// tests/ops/conv2d_test.cc.)

#include "runtime/cpu/conv2d/conv2d_bf16x3.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/conv2d_cases.h"

namespace lockstep::cpu {
namespace {

std::vector<float> forward_bf16x3(const graph::Conv2dShape& s,
                                  ConvInputs& in,
                                  const Epilogue<float>& epilogue) {
  Guarded<float> y(in.d_y.size(), 3);
  std::fill(y.begin(), y.end(), NAN);
  Guarded<unsigned char> workspace(bf16x3::conv2d_forward_workspace_bytes(s, compute_threads()));
  bf16x3::conv2d_forward(
      {.shape = s, .x = in.x.data(), .w = in.w.data(), .epilogue = epilogue, .y = y.data()},
      workspace.data());
  return y.copy();
}

TEST(Conv2dBf16x3, TakesWhatFillsTiles) {
  EXPECT_TRUE(bf16x3::supports(square(1, 8, 32, 32, 3, 2, 1)));
  EXPECT_TRUE(bf16x3::supports(square(1, 8, 128, 128, 3, 1, 1)));
  EXPECT_TRUE(bf16x3::supports(square(1, 8, 64, 64, 3, 1, 1, 1, 2)));
  EXPECT_FALSE(bf16x3::supports(square(1, 8, 3, 64, 7, 2, 3)));
  EXPECT_FALSE(bf16x3::supports(square(1, 8, 64, 64, 3, 1, 1)));
  EXPECT_FALSE(bf16x3::supports(square(1, 8, 40, 64, 3, 1, 1)));
  EXPECT_FALSE(bf16x3::supports(square(1, 8, 64, 64, 3, 1, 1, 1, 64)));
  for (const graph::Conv2dShape& s : test::bf16x3_conv2d_shapes())
    EXPECT_TRUE(bf16x3::supports(s)) << describe(s);
}

TEST(Conv2dBf16x3, AnImageDoesNotDependOnTheOthers) {
  for (graph::Conv2dShape s : test::bf16x3_conv2d_shapes()) {
    s.batch = 3;
    ConvInputs in(s);
    const std::vector<float> all = forward_bf16x3(s, in, {});
    graph::Conv2dShape alone = s;
    alone.batch = 1;
    ConvInputs last(alone);
    std::copy(in.x.end() - last.x.size(), in.x.end(), last.x.begin());
    const std::vector<float> y = forward_bf16x3(alone, last, {});
    test::expect_same_bits(y, std::vector<float>(all.end() - y.size(), all.end()), describe(s));
  }
}

}  // namespace
}  // namespace lockstep::cpu
