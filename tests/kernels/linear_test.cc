// The linear layer against double-precision loops, and its bits against one chain of fused
// multiply-adds per output. Would catch: a bias or activation applied to the wrong element, twice,
// or to a partial sum; outputs that depend on how many rows there are, on the threads or on the
// vector width; accumulation where there should be none; writes outside of the outputs.

#include "runtime/cpu/matmul/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/reference/kernel_test.h"
#include "tests/reference/linear_reference.h"

namespace lockstep::cpu {
namespace {

using test::Guarded;
using test::kEps;

constexpr Activation kActivations[] = {Activation::kNone,
                                       Activation::kRelu,
                                       Activation::kGeluTanh,
                                       Activation::kGeluErf,
                                       Activation::kSilu,
                                       Activation::kTanh,
                                       Activation::kRelu6};

// Sizes around the tile, the few-rows kernel (at most 8 rows), a strip (192 outputs), a chunk of
// rows (512) and a depth block (768).
constexpr LinearShape kShapes[] = {{1, 1, 1},
                                   {1, 70, 100},
                                   {2, 5, 33},
                                   {4, 17, 40},
                                   {5, 785, 70},
                                   {8, 64, 200},
                                   {9, 20, 10},
                                   {16, 50, 97},
                                   {17, 800, 12},
                                   {32, 64, 32},
                                   {33, 31, 110},
                                   {40, 770, 205},
                                   {70, 13, 200},
                                   {130, 40, 37},
                                   {515, 6, 201}};

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

struct Outputs {
  std::vector<float> pre, y;
};

Outputs forward(
    const LinearShape& s, Inputs& in, bool with_bias, Activation activation, bool with_pre) {
  Guarded<float> pre(with_pre ? s.rows * s.outputs : 0, 1), y(s.rows * s.outputs, 3);
  for (auto* output : {&pre, &y}) std::fill(output->begin(), output->end(), NAN);
  Guarded<unsigned char> workspace(linear_workspace_bytes(s, compute_threads()));
  linear_forward(
      {.shape = s,
       .x = in.x.data(),
       .w = in.w.data(),
       .epilogue = {.bias = with_bias ? in.bias.data() : nullptr, .activation = activation},
       .pre = with_pre ? pre.data() : nullptr,
       .y = y.data()},
      workspace.data());
  return {pre.copy(), y.copy()};
}

test::LinearReference reference(const LinearShape& s,
                                const Inputs& in,
                                bool with_bias,
                                Activation activation) {
  test::LinearReference result{
      .rows = s.rows,
      .inputs = s.inputs,
      .outputs = s.outputs,
      .activation = activation,
      .x = test::to_double(in.x),
      .w = test::to_double(in.w),
      .bias = with_bias ? test::to_double(in.bias) : std::vector<double>()};
  result.forward();
  return result;
}

TEST(Linear, ForwardIsClose) {
  for (const LinearShape& s : kShapes) {
    Inputs in(s);
    for (Activation activation : kActivations) {
      const bool with_bias = activation != Activation::kSilu;
      const auto expected = reference(s, in, with_bias, activation);
      // A chain of K fused multiply-adds and a bias: K + 1 roundings of half an eps, each of a
      // partial sum that the sum of magnitudes bounds. No activation is steeper than 1.13; its own
      // error is some ulp of |y| <= |pre| + 1.
      const auto tolerance = [&](int64_t i) {
        return (0.5 * (s.inputs + 1) * 1.13 + 8) * kEps * (expected.magnitude[i] + 1);
      };
      test::for_each_target([&](const std::string& target) {
        const Outputs actual = forward(s, in, with_bias, activation, /*with_pre=*/true);
        const std::string what = describe(s) + " activation " +
                                 std::to_string(static_cast<int>(activation)) + " on " + target;
        test::expect_close(actual.pre, expected.pre, tolerance, "pre of " + what);
        test::expect_close(actual.y, expected.y, tolerance, "y of " + what);
        const Outputs without = forward(s, in, with_bias, activation, /*with_pre=*/false);
        test::expect_same_bits(without.y, actual.y, "y without pre of " + what);
      });
    }
  }
}

TEST(Linear, ForwardIsOneChainOfFusedMultiplyAdds) {
  // Also makes the bits of a row independent of the other rows: generating one token at a time
  // gives what a whole sequence gives.
  if (!test::cpu_has(HWY_AVX2)) GTEST_SKIP() << "this CPU has no fused multiply-add";
  for (const LinearShape& s : kShapes) {
    Inputs in(s);
    std::vector<float> sums(s.rows * s.outputs), expected(s.rows * s.outputs);
    for (int64_t m = 0; m < s.rows; ++m) {
      for (int64_t n = 0; n < s.outputs; ++n) {
        float sum = 0;
        for (int64_t k = 0; k < s.inputs; ++k) {
          sum = std::fma(in.x[m * s.inputs + k], in.w[n * s.inputs + k], sum);
        }
        sums[m * s.outputs + n] = sum;
        expected[m * s.outputs + n] = sum + in.bias[n];
      }
    }
    for (int64_t target : {HWY_AVX2, HWY_AVX3}) {
      if (!test::cpu_has(target)) continue;
      test::ScopedTarget scope(target);
      const Outputs actual = forward(s, in, true, Activation::kNone, true);
      test::expect_same_bits(actual.pre, expected, "pre of " + describe(s));
      test::expect_same_bits(actual.y, expected, "y of " + describe(s));
      test::expect_same_bits(
          forward(s, in, false, Activation::kNone, false).y, sums, "sums of " + describe(s));
    }
  }
}

TEST(Linear, ForwardIsReproducible) {
  for (const LinearShape& s : kShapes) {
    Inputs in(s);
    for (Activation activation : kActivations) {
      test::expect_reproducible<float>(
          [&] { return forward(s, in, true, activation, false).y; },
          describe(s) + " activation " + std::to_string(static_cast<int>(activation)));
    }
    test::expect_reproducible<float>(
        [&] { return forward(s, in, false, Activation::kNone, false).y; }, describe(s) + " sums");
  }
}

struct Gradients {
  std::vector<float> d_x, d_w, d_bias;
};

Gradients backward(const LinearShape& s, Inputs& in, bool accumulate) {
  Guarded<float> d_x(s.rows * s.inputs, 1), d_w(s.outputs * s.inputs, 2), d_bias(s.outputs, 3);
  // What is overwritten must not matter, not even when it is NaN.
  for (auto* output : {&d_x, &d_w, &d_bias}) std::fill(output->begin(), output->end(), NAN);
  if (accumulate) {
    test::fill_uniform(d_w, -1, 1, 15);
    test::fill_uniform(d_bias, -1, 1, 16);
  }
  Guarded<unsigned char> workspace(linear_workspace_bytes(s, compute_threads()));
  linear_backward_input(s, in.d_y.data(), in.w.data(), d_x.data(), workspace.data());
  linear_backward_weight(s, in.d_y.data(), in.x.data(), d_w.data(), accumulate, workspace.data());
  linear_backward_bias(s, in.d_y.data(), d_bias.data(), accumulate);
  return {d_x.copy(), d_w.copy(), d_bias.copy()};
}

TEST(Linear, BackwardIsClose) {
  for (const LinearShape& s : kShapes) {
    Inputs in(s);
    for (bool accumulate : {false, true}) {
      auto expected = reference(s, in, true, Activation::kNone);
      expected.backward(test::to_double(in.d_y));
      if (accumulate) {
        std::vector<float> before(s.outputs * s.inputs), bias_before(s.outputs);
        test::fill_uniform(before, -1, 1, 15);
        test::fill_uniform(bias_before, -1, 1, 16);
        for (size_t i = 0; i < before.size(); ++i) expected.d_w[i] += before[i];
        for (size_t i = 0; i < bias_before.size(); ++i) expected.d_bias[i] += bias_before[i];
      }
      // Each is a chain of as many roundings as its reduction is long (and one more for what was
      // there before), of partial sums that the magnitudes (and 1) bound.
      const double rows = 0.5 * (s.rows + 1) * kEps, outputs = 0.5 * (s.outputs + 1) * kEps;
      test::for_each_target([&](const std::string& target) {
        const Gradients actual = backward(s, in, accumulate);
        const std::string what = " of " + describe(s) + " on " + target;
        test::expect_close(
            actual.d_x,
            expected.d_x,
            [&](int64_t i) { return outputs * expected.d_x_magnitude[i]; },
            "d_x" + what);
        test::expect_close(
            actual.d_w,
            expected.d_w,
            [&](int64_t i) { return rows * (expected.d_w_magnitude[i] + 1); },
            "d_w" + what);
        test::expect_close(
            actual.d_bias,
            expected.d_bias,
            [&](int64_t i) { return rows * (expected.d_bias_magnitude[i] + 1); },
            "d_bias" + what);
      });
    }
  }
}

TEST(Linear, BackwardIsReproducible) {
  for (const LinearShape& s : kShapes) {
    Inputs in(s);
    test::expect_reproducible<float>([&] { return backward(s, in, true).d_x; },
                                     "d_x of " + describe(s));
    test::expect_reproducible<float>([&] { return backward(s, in, true).d_w; },
                                     "d_w of " + describe(s));
    test::expect_reproducible<float>([&] { return backward(s, in, true).d_bias; },
                                     "d_bias of " + describe(s));
  }
}

TEST(Linear, ReferenceBackwardMatchesFiniteDifferences) {
  const LinearShape s{3, 4, 5};
  Inputs in(s);
  for (Activation activation : kActivations) {
    auto layer = reference(s, in, true, activation);
    const std::vector<double> d_y = test::to_double(in.d_y);
    const auto loss = [&] {
      layer.forward();
      double sum = 0;
      for (size_t i = 0; i < d_y.size(); ++i) sum += d_y[i] * layer.y[i];
      return sum;
    };
    loss();
    layer.backward(d_y);
    test::expect_gradient(loss, layer.x, layer.d_x, "d_x");
    test::expect_gradient(loss, layer.w, layer.d_w, "d_w");
    test::expect_gradient(loss, layer.bias, layer.d_bias, "d_bias");
  }
}

}  // namespace
}  // namespace lockstep::cpu
