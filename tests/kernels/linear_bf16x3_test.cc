// The linear layer with the products of bf16x3.h against double-precision loops. Would catch: a
// bias or activation applied to a partial sum, twice, not at all, or to the wrong columns; a
// pre-activation that is not kept; operands taken the wrong way round; outputs that depend on the
// threads, on the instruction set or on the other rows; writes outside of the outputs.

#include "runtime/cpu/matmul/linear_bf16x3.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/reference/kernel_test.h"
#include "tests/reference/linear_reference.h"

namespace lockstep::cpu {
namespace {

using test::Guarded;
using test::kEps;

// Sizes around tiles (16), panels and pairs of tiles (32), blocks of rows and of the depth.
constexpr LinearShape kShapes[] = {
    {1, 70, 100}, {5, 785, 70}, {17, 33, 12}, {33, 31, 110}, {40, 1600, 205}, {515, 64, 33}};

std::string describe(const LinearShape& s) {
  return std::to_string(s.rows) + " x " + std::to_string(s.inputs) + " -> " +
         std::to_string(s.outputs);
}

struct Inputs {
  explicit Inputs(const LinearShape& s)
      : x(s.rows * s.inputs, 1),
        w(s.outputs * s.inputs, 2),
        bias(s.outputs, 3),
        d_y(s.rows * s.outputs, 1) {
    test::fill_uniform(x, -1, 1, 11);
    test::fill_uniform(w, -1, 1, 12);
    test::fill_uniform(bias, -1, 1, 13);
    test::fill_uniform(d_y, -1, 1, 14);
  }
  Guarded<float> x, w, bias, d_y;
};

test::LinearReference reference(const LinearShape& s, const Inputs& in, Activation activation) {
  test::LinearReference result{.rows = s.rows,
                               .inputs = s.inputs,
                               .outputs = s.outputs,
                               .activation = activation,
                               .x = test::to_double(in.x),
                               .w = test::to_double(in.w),
                               .bias = test::to_double(in.bias)};
  result.forward();
  return result;
}

struct Outputs {
  std::vector<float> pre, y;
};

Outputs forward(const LinearShape& s, Inputs& in, Activation activation, bool with_pre) {
  Guarded<float> pre(with_pre ? s.rows * s.outputs : 0, 1), y(s.rows * s.outputs, 3);
  for (auto* output : {&pre, &y}) std::fill(output->begin(), output->end(), NAN);
  Guarded<unsigned char> workspace(bf16x3::linear_workspace_bytes(s, compute_threads()));
  bf16x3::linear_forward({.shape = s,
                          .x = in.x.data(),
                          .w = in.w.data(),
                          .epilogue = {.bias = in.bias.data(), .activation = activation},
                          .pre = with_pre ? pre.data() : nullptr,
                          .y = y.data()},
                         workspace.data());
  return {pre.copy(), y.copy()};
}

// Roundings of a sum over such a depth: six in a chunk of 32, those of the chains within it, and
// what the products leave out.
double bound(int64_t depth) { return (3.0 * static_cast<double>((depth + 31) / 32) + 10) * kEps; }

TEST(LinearBf16x3, ForwardIsClose) {
  for (const LinearShape& s : kShapes) {
    Inputs in(s);
    for (Activation activation : {Activation::kNone, Activation::kRelu, Activation::kGeluTanh}) {
      const auto expected = reference(s, in, activation);
      // No activation is steeper than 1.13; its own error is some ulp of |y| <= |pre| + 1.
      const auto tolerance = [&](int64_t i) {
        return (1.13 * bound(s.inputs) + 8 * kEps) * (expected.magnitude[i] + 1);
      };
      const std::string what = describe(s);
      const Outputs actual = forward(s, in, activation, /*with_pre=*/true);
      test::expect_close(actual.pre, expected.pre, tolerance, "pre of " + what);
      test::expect_close(actual.y, expected.y, tolerance, "y of " + what);
      test::expect_same_bits(
          forward(s, in, activation, /*with_pre=*/false).y, actual.y, "y without pre of " + what);
    }
  }
}

TEST(LinearBf16x3, ARowDoesNotDependOnTheOthers) {
  const LinearShape s{40, 70, 50};
  Inputs in(s);
  const std::vector<float> all = forward(s, in, Activation::kRelu, false).y;
  LinearShape alone = s;
  alone.rows = 1;
  Inputs last(alone);
  std::copy(in.x.end() - s.inputs, in.x.end(), last.x.begin());
  test::expect_same_bits(forward(alone, last, Activation::kRelu, false).y,
                         std::vector<float>(all.end() - s.outputs, all.end()),
                         "the last row");
}

struct Gradients {
  std::vector<float> d_x, d_w;
};

Gradients backward(const LinearShape& s, Inputs& in) {
  Guarded<float> d_x(s.rows * s.inputs, 1), d_w(s.outputs * s.inputs, 2);
  Guarded<unsigned char> workspace(bf16x3::linear_workspace_bytes(s, compute_threads()));
  bf16x3::linear_backward_input(s, in.d_y.data(), in.w.data(), d_x.data(), workspace.data());
  bf16x3::linear_backward_weight(
      s, in.d_y.data(), in.x.data(), d_w.data(), /*accumulate=*/false, workspace.data());
  return {d_x.copy(), d_w.copy()};
}

TEST(LinearBf16x3, BackwardIsClose) {
  for (const LinearShape& s : kShapes) {
    Inputs in(s);
    auto expected = reference(s, in, Activation::kNone);
    expected.backward(test::to_double(in.d_y));
    const Gradients actual = backward(s, in);
    test::expect_close(
        actual.d_x,
        expected.d_x,
        [&](int64_t i) { return bound(s.outputs) * expected.d_x_magnitude[i]; },
        "d_x of " + describe(s));
    test::expect_close(
        actual.d_w,
        expected.d_w,
        [&](int64_t i) { return bound(s.rows) * expected.d_w_magnitude[i]; },
        "d_w of " + describe(s));
  }
}

TEST(LinearBf16x3, IsReproducible) {
  for (const LinearShape& s : kShapes) {
    Inputs in(s);
    test::expect_reproducible<float>([&] { return forward(s, in, Activation::kGeluTanh, false).y; },
                                     "y of " + describe(s));
    test::expect_reproducible<float>([&] { return backward(s, in).d_x; }, "d_x of " + describe(s));
    test::expect_reproducible<float>([&] { return backward(s, in).d_w; }, "d_w of " + describe(s));
  }
}

}  // namespace
}  // namespace lockstep::cpu
