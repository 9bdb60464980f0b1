// The bits of direct convolutions and their gradients against one chain of fused multiply-adds per
// output, and the accuracy of the others. Catches: another order of summation; outputs that depend
// on the other images; Winograd's transforms less accurate than they can be. (Everything else of
// the op: tests/ops/conv2d_test.cc.)

#include "runtime/cpu/conv2d/conv2d.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/cpu/conv2d/conv2d_winograd.h"
#include "runtime/graph/window.h"
#include "tests/kernels/conv2d_cases.h"
#include "tests/reference/conv2d.h"
#include "tests/reference/sanitizers.h"

namespace lockstep::cpu {
namespace {

TEST(Conv2d, OutExtent) {
  EXPECT_EQ(graph::window_count(32, 3, 1, 1, 1), 32);
  EXPECT_EQ(graph::window_count(224, 7, 2, 3, 1), 112);
  EXPECT_EQ(graph::window_count(7, 3, 2, 0, 2), 2);
  EXPECT_EQ(graph::window_count(2, 3, 1, 0, 1), 0);
  EXPECT_EQ(graph::window_count(2, 4, 3, 0, 1), 0);
}

TEST(Conv2d, AnImageDoesNotDependOnTheOthers) {
  for (graph::Conv2dShape s : conv2d_shapes()) {
    s.batch = 3;
    ConvInputs in(s);
    const std::vector<float> all = forward(s, in, {.bias = in.bias.data()});
    graph::Conv2dShape alone = s;
    alone.batch = 1;
    ConvInputs last(alone);
    std::copy(in.x.end() - last.x.size(), in.x.end(), last.x.begin());
    const std::vector<float> y = forward(alone, last, {.bias = last.bias.data()});
    test::expect_same_bits(y, std::vector<float>(all.end() - y.size(), all.end()), describe(s));
  }
}

// One chain of fused multiply-adds per output, in T.
template <typename T>
std::vector<T> forward_chains(const graph::Conv2dShape& s, const ConvInputs& in) {
  std::vector<T> y(in.d_y.size());
  test::for_each_product(s, [&](int64_t to, int64_t pixel, int64_t weight) {
    y[to] = std::fma(T{in.x[pixel]}, T{in.w[weight]}, y[to]);
  });
  for (size_t i = 0; i < y.size(); ++i) y[i] += in.bias[i % s.outputs];
  return y;
}

template <typename T>
struct Gradients {
  std::vector<T> d_x, d_w;
};

Gradients<float> backward(const graph::Conv2dShape& s, ConvInputs& in) {
  Guarded<float> d_x(in.x.size(), 1), d_w(in.w.size(), 2);
  // What is overwritten must not matter, not even when it is NaN.
  for (auto* output : {&d_x, &d_w}) std::fill(output->begin(), output->end(), NAN);
  Guarded<std::byte> workspace(conv2d_workspace_bytes(s, compute_threads()));
  const graph::Conv2dBackward<float> op = {.shape = s,
                                           .accumulate_weight = false,
                                           .accumulate_bias = false,
                                           .d_y = in.d_y.data(),
                                           .x = in.x.data(),
                                           .weight = in.w.data(),
                                           .d_x = d_x.data(),
                                           .d_weight = d_w.data(),
                                           .workspace = workspace.data()};
  conv2d_backward_input(op);
  conv2d_backward_weight(op);
  return {d_x.copy(), d_w.copy()};
}

// The same for the gradients: over the taps and the outputs of each, over the pixels of the
// outputs.
template <typename T>
Gradients<T> backward_chains(const graph::Conv2dShape& s, const ConvInputs& in) {
  Gradients<T> result{std::vector<T>(in.x.size()), std::vector<T>(in.w.size())};
  struct Product {
    int64_t weight, from;
  };
  std::vector<std::vector<Product>> of_pixel(in.x.size());
  test::for_each_product(s, [&](int64_t from, int64_t pixel, int64_t weight) {
    result.d_w[weight] = std::fma(T{in.d_y[from]}, T{in.x[pixel]}, result.d_w[weight]);
    of_pixel[pixel].push_back({weight, from});
  });
  for (size_t pixel = 0; pixel < of_pixel.size(); ++pixel) {
    std::vector<Product>& products = of_pixel[pixel];
    std::sort(products.begin(), products.end(), [&](const Product& a, const Product& b) {
      return std::pair(a.weight % s.patch(), a.weight) < std::pair(b.weight % s.patch(), b.weight);
    });
    for (const auto [weight, from] : products) {
      result.d_x[pixel] = std::fma(T{in.d_y[from]}, T{in.w[weight]}, result.d_x[pixel]);
    }
  }
  return result;
}

TEST(Conv2d, DirectConvolutionsAreChainsOfFusedMultiplyAdds) {
  if (!test::cpu_has(HWY_AVX2)) GTEST_SKIP() << "this CPU has no fused multiply-add";
  for (const graph::Conv2dShape& s : conv2d_shapes()) {
    if (uses_winograd(s)) continue;
    ConvInputs in(s);
    const std::vector<float> y = forward_chains<float>(s, in);
    const Gradients<float> gradients = backward_chains<float>(s, in);
    for (int64_t target : {HWY_AVX2, HWY_AVX3}) {
      if (!test::cpu_has(target)) continue;
      test::ScopedTarget scope(target);
      test::expect_same_bits(forward(s, in, {.bias = in.bias.data()}), y, "y of " + describe(s));
      const Gradients<float> actual = backward(s, in);
      test::expect_same_bits(actual.d_x, gradients.d_x, "d_x of " + describe(s));
      test::expect_same_bits(actual.d_w, gradients.d_w, "d_w of " + describe(s));
    }
  }
}

double root_mean_square_error(const std::vector<float>& actual,
                              const std::vector<double>& expected) {
  double sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    sum += (actual[i] - expected[i]) * (actual[i] - expected[i]);
  }
  return std::sqrt(sum / static_cast<double>(expected.size()));
}

TEST(Conv2d, WinogradIsAccurate) {
  LOCKSTEP_SKIP_WITH_SANITIZERS();
  // Its transforms add up a few numbers of about the results' size, so that its typical error is
  // that of a direct convolution, within a small factor.
  for (const graph::Conv2dShape& s : {square(2, 12, 32, 32, 3, 1, 1),
                                      square(2, 16, 64, 64, 3, 1, 1),
                                      square(4, 7, 256, 64, 3, 1, 1)}) {
    ASSERT_TRUE(uses_winograd(s));
    ConvInputs in(s);
    const std::vector<double> expected_y = forward_chains<double>(s, in);
    const Gradients<double> expected = backward_chains<double>(s, in);
    const std::vector<float> y = forward(s, in, {.bias = in.bias.data()});
    const Gradients<float> gradients = backward(s, in), direct = backward_chains<float>(s, in);
    EXPECT_LT(root_mean_square_error(y, expected_y),
              2 * root_mean_square_error(forward_chains<float>(s, in), expected_y))
        << "y of " << describe(s);
    EXPECT_LT(root_mean_square_error(gradients.d_x, expected.d_x),
              2 * root_mean_square_error(direct.d_x, expected.d_x))
        << "d_x of " << describe(s);
    EXPECT_LT(root_mean_square_error(gradients.d_w, expected.d_w),
              2 * root_mean_square_error(direct.d_w, expected.d_w))
        << "d_w of " << describe(s);
  }
}

}  // namespace
}  // namespace lockstep::cpu
