// Convolutions and their gradients against double-precision loops, and the bits of the direct ones
// against one chain of fused multiply-adds per output. Would catch: taps that read the wrong pixel
// at borders, with strides or with dilation; padding taken from a neighbouring row or image; groups
// that see each other; a bias or activation applied to a partial sum; outputs that depend on the
// threads, on the vector width or on the other images; another order of summation; accumulation
// where there should be none; pixels that no output sees left unwritten; writes outside of the
// outputs; Winograd's transforms less accurate than they can be.

#include "runtime/cpu/conv2d/conv2d.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/cpu/conv2d/conv2d_winograd.h"
#include "runtime/graph/window.h"
#include "tests/kernels/conv2d_cases.h"

namespace lockstep::cpu {
namespace {

constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kGeluTanh};

TEST(Conv2d, OutExtent) {
  EXPECT_EQ(window_count(32, 3, 1, 1, 1), 32);
  EXPECT_EQ(window_count(224, 7, 2, 3, 1), 112);
  EXPECT_EQ(window_count(7, 3, 2, 0, 2), 2);
  EXPECT_EQ(window_count(2, 3, 1, 0, 1), 0);
  EXPECT_EQ(window_count(2, 4, 3, 0, 1), 0);
}

TEST(Conv2d, ForwardIsClose) {
  for (const Conv2dShape& s : shapes()) {
    Inputs in(s);
    const int64_t depth = s.kernel_h * s.kernel_w * s.group_channels();
    for (Activation activation : kActivations) {
      const bool with_bias = activation != Activation::kRelu;
      const auto expected = reference(s, in, with_bias, activation);
      // A chain of so many fused multiply-adds and a bias, each rounding a partial sum that the sum
      // of magnitudes bounds by half an eps. No activation is steeper than 1.13; its own error is
      // some ulp of |y| <= |pre| + 1. Winograd's transforms have no such bound, but the same
      // typical error (see WinogradIsAccurate), which is far below this bound.
      const auto tolerance = [&](int64_t i) {
        return (0.5 * (depth + 1) * 1.13 + 8) * kEps * (expected.magnitude[i] + 1);
      };
      test::for_each_target([&](const std::string& target) {
        const std::vector<float> y = forward(s, in, with_bias, activation);
        const std::string what = describe(s) + " activation " +
                                 std::to_string(static_cast<int>(activation)) + " on " + target;
        test::expect_close(y, expected.y, tolerance, "y of " + what);
      });
    }
  }
}

TEST(Conv2d, IsReproducible) {
  for (const Conv2dShape& s : shapes()) {
    Inputs in(s);
    test::expect_reproducible<float>([&] { return forward(s, in, true, Activation::kGeluTanh); },
                                     describe(s));
  }
}

TEST(Conv2d, AnImageDoesNotDependOnTheOthers) {
  for (Conv2dShape s : shapes()) {
    s.batch = 3;
    Inputs in(s);
    const std::vector<float> all = forward(s, in, true, Activation::kNone);
    Conv2dShape alone = s;
    alone.batch = 1;
    Inputs last(alone);
    std::copy(in.x.end() - last.x.size(), in.x.end(), last.x.begin());
    const std::vector<float> y = forward(alone, last, true, Activation::kNone);
    test::expect_same_bits(y, std::vector<float>(all.end() - y.size(), all.end()), describe(s));
  }
}

// One chain of fused multiply-adds per output.
std::vector<float> forward_chains(const Conv2dShape& s, const Inputs& in) {
  std::vector<float> y(in.d_y.size());
  test::Conv2dReference{.shape = s, .activation = Activation::kNone}.for_each_product(
      [&](int64_t to, int64_t pixel, int64_t weight) {
        y[to] = std::fma(in.x[pixel], in.w[weight], y[to]);
      });
  for (size_t i = 0; i < y.size(); ++i) y[i] += in.bias[i % s.outputs];
  return y;
}

struct Gradients {
  std::vector<float> d_x, d_w;
};

Gradients backward(const Conv2dShape& s, Inputs& in, bool accumulate) {
  Guarded<float> d_x(in.x.size(), 1), d_w(in.w.size(), 2);
  // What is overwritten must not matter, not even when it is NaN.
  for (auto* output : {&d_x, &d_w}) std::fill(output->begin(), output->end(), NAN);
  if (accumulate) test::fill_uniform(d_w, -1, 1, 15);
  Guarded<unsigned char> workspace(conv2d_workspace_bytes(s, compute_threads()));
  conv2d_backward_input(s, in.d_y.data(), in.w.data(), d_x.data(), workspace.data());
  conv2d_backward_weight(s, in.d_y.data(), in.x.data(), d_w.data(), accumulate, workspace.data());
  return {d_x.copy(), d_w.copy()};
}

// The same for the gradients: over the taps and the outputs of each, over the pixels of the
// outputs.
Gradients backward_chains(const Conv2dShape& s, const Inputs& in) {
  Gradients result{std::vector<float>(in.x.size()), std::vector<float>(in.w.size())};
  const test::Conv2dReference layer{.shape = s, .activation = Activation::kNone};
  struct Product {
    int64_t weight, from;
  };
  std::vector<std::vector<Product>> of_pixel(in.x.size());
  const int64_t taps = s.kernel_h * s.kernel_w * s.group_channels();
  layer.for_each_product([&](int64_t from, int64_t pixel, int64_t weight) {
    result.d_w[weight] = std::fma(in.d_y[from], in.x[pixel], result.d_w[weight]);
    of_pixel[pixel].push_back({weight, from});
  });
  for (size_t pixel = 0; pixel < of_pixel.size(); ++pixel) {
    std::vector<Product>& products = of_pixel[pixel];
    std::sort(products.begin(), products.end(), [&](const Product& a, const Product& b) {
      return std::pair(a.weight % taps, a.weight) < std::pair(b.weight % taps, b.weight);
    });
    for (const auto [weight, from] : products) {
      result.d_x[pixel] = std::fma(in.d_y[from], in.w[weight], result.d_x[pixel]);
    }
  }
  return result;
}

TEST(Conv2d, DirectConvolutionsAreChainsOfFusedMultiplyAdds) {
  if (!test::cpu_has(HWY_AVX2)) GTEST_SKIP() << "this CPU has no fused multiply-add";
  for (const Conv2dShape& s : shapes()) {
    if (uses_winograd(s)) continue;
    Inputs in(s);
    const std::vector<float> y = forward_chains(s, in);
    const Gradients gradients = backward_chains(s, in);
    for (int64_t target : {HWY_AVX2, HWY_AVX3}) {
      if (!test::cpu_has(target)) continue;
      test::ScopedTarget scope(target);
      test::expect_same_bits(forward(s, in, true, Activation::kNone), y, "y of " + describe(s));
      const Gradients actual = backward(s, in, false);
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
  // Its transforms add up a few numbers of about the results' size, so that its typical error is
  // that of a direct convolution, within a small factor.
  for (const Conv2dShape& s : {square(2, 12, 32, 32, 3, 1, 1),
                               square(2, 16, 64, 64, 3, 1, 1),
                               square(4, 7, 256, 64, 3, 1, 1)}) {
    ASSERT_TRUE(uses_winograd(s));
    Inputs in(s);
    auto expected = reference(s, in, true, Activation::kNone);
    expected.backward(test::to_double(in.d_y));
    const std::vector<float> y = forward(s, in, true, Activation::kNone);
    const Gradients gradients = backward(s, in, false), direct = backward_chains(s, in);
    EXPECT_LT(root_mean_square_error(y, expected.y),
              2 * root_mean_square_error(forward_chains(s, in), expected.y))
        << "y of " << describe(s);
    EXPECT_LT(root_mean_square_error(gradients.d_x, expected.d_x),
              2 * root_mean_square_error(direct.d_x, expected.d_x))
        << "d_x of " << describe(s);
    EXPECT_LT(root_mean_square_error(gradients.d_w, expected.d_w),
              2 * root_mean_square_error(direct.d_w, expected.d_w))
        << "d_w of " << describe(s);
  }
}

TEST(Conv2d, BackwardIsClose) {
  for (const Conv2dShape& s : shapes()) {
    Inputs in(s);
    for (bool accumulate : {false, true}) {
      auto expected = reference(s, in, false, Activation::kNone);
      expected.backward(test::to_double(in.d_y));
      if (accumulate) {
        std::vector<float> before(in.w.size());
        test::fill_uniform(before, -1, 1, 15);
        for (size_t i = 0; i < before.size(); ++i) expected.d_w[i] += before[i];
      }
      // Each is a chain of at most as many roundings as there are taps and outputs, or pixels (and
      // one more for what was there before), of partial sums that the magnitudes (and 1) bound. The
      // bound of very short chains is below the typical error of Winograd's transforms.
      const double least = uses_winograd(s) ? 8 : 0;
      const double taps = s.kernel_h * s.kernel_w * s.group_outputs();
      const double outputs = (0.5 * (taps + 1) + least) * kEps;
      const double pixels = (0.5 * (s.out_pixels() + 1) + least) * kEps;
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
            [&](int64_t i) { return pixels * (expected.d_w_magnitude[i] + 1); },
            "d_w" + what);
      });
    }
  }
}

TEST(Conv2d, BackwardIsReproducible) {
  for (const Conv2dShape& s : shapes()) {
    Inputs in(s);
    test::expect_reproducible<float>([&] { return backward(s, in, true).d_x; },
                                     "d_x of " + describe(s));
    test::expect_reproducible<float>([&] { return backward(s, in, true).d_w; },
                                     "d_w of " + describe(s));
  }
}

TEST(Conv2d, ReferenceBackwardMatchesFiniteDifferences) {
  for (const Conv2dShape& s : {square(2, 4, 2, 3, 3, 2, 1), square(1, 5, 4, 2, 2, 1, 0, 2, 2)}) {
    Inputs in(s);
    auto layer = reference(s, in, true, Activation::kNone);
    const std::vector<double> d_y = test::to_double(in.d_y);
    const auto loss = [&] {
      layer.forward();
      double sum = 0;
      for (size_t i = 0; i < d_y.size(); ++i) sum += d_y[i] * layer.y[i];
      return sum;
    };
    layer.backward(d_y);
    test::expect_gradient(loss, layer.x, layer.d_x, "d_x");
    test::expect_gradient(loss, layer.w, layer.d_w, "d_w");
  }
}

}  // namespace
}  // namespace lockstep::cpu
