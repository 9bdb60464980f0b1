// Catches: bits of a linear layer's row that depend on how many other rows there are, where the
// products are those of bf16x3.h. (Of those of gemm.h, tests/ops/linear_test.cc knows every bit.)

#include "runtime/cpu/matmul/linear_bf16x3.h"

#include <gtest/gtest.h>

#include "tests/reference/kernel_test.h"

namespace lockstep::cpu {
namespace {

using test::Guarded;

std::vector<float> forward(const graph::LinearShape& s, const float* x, const float* w) {
  Guarded<float> y(s.rows * s.outputs);
  Guarded<unsigned char> workspace(bf16x3::linear_workspace_bytes(s, compute_threads()));
  bf16x3::linear_forward({.shape = s,
                          .x = {x, s.inputs},
                          .w = {w, s.inputs},
                          .epilogue = {.activation = Activation::kRelu},
                          .pre = nullptr,
                          .y = y.data()},
                         workspace.data());
  return y.copy();
}

TEST(LinearBf16x3, ARowDoesNotDependOnTheOthers) {
  const graph::LinearShape s{40, 70, 50};
  Guarded<float> x(s.rows * s.inputs), w(s.outputs * s.inputs);
  test::fill_uniform(x, -1, 1, 11);
  test::fill_uniform(w, -1, 1, 12);
  const std::vector<float> all = forward(s, x.data(), w.data());
  const float* const last = x.data() + (s.rows - 1) * s.inputs;
  test::expect_same_bits(forward({1, s.inputs, s.outputs}, last, w.data()),
                         std::vector<float>(all.end() - s.outputs, all.end()),
                         "the last row");
}

}  // namespace
}  // namespace lockstep::cpu
