// Catches: a wrong formula or constant, loss of accuracy anywhere on the line, overflow for huge
// inputs, NaN swallowed, a tail that reads or writes past the end, results that depend on the
// vector width or the number of threads.

#include "runtime/cpu/ops/activations.h"

#include "tests/reference/activations.h"
#include "tests/reference/kernel_test.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

constexpr Activation kAll[] = {Activation::kNone,
                               Activation::kRelu,
                               Activation::kGeluTanh,
                               Activation::kGeluErf,
                               Activation::kSilu,
                               Activation::kTanh};

class ActivationsTest : public testing::TestWithParam<Activation> {};
INSTANTIATE_TEST_SUITE_P(All, ActivationsTest, testing::ValuesIn(kAll));

TEST_P(ActivationsTest, DoublePrecisionDerivativeMatchesFiniteDifferences) {
  for (double x = -6.05; x < 6; x += 0.1) {  // keeps off the kink of ReLU at 0
    std::vector<double> at{x};
    test::expect_gradient([&] { return test::activation_value(GetParam(), at[0]); },
                          at,
                          {test::activation_derivative(GetParam(), x)},
                          "derivative");
  }
}

TEST_P(ActivationsTest, MatchesDoublePrecision) {
  const Activation activation = GetParam();
  test::for_each_target([&](const std::string& target) {
    for (int64_t n : {1, 15, 17, 1003}) {
      Guarded<float> x(n, 1), y(n, 3), d_y(n, 1), d_x(n, 2);
      test::fill_uniform(x, -12, 12, n);
      test::fill_uniform(d_y, -2, 2, n + 1);
      cpu::activation_forward(activation, x.data(), y.data(), n);
      const Guarded<float>& saved = saves_pre_activation(activation) ? x : y;
      cpu::activation_backward(activation, d_y.data(), saved.data(), d_x.data(), n);
      // Each value is a few operations on factors of magnitude |x| at most: 4 eps covers exp (2
      // ulp), division and the product; the derivative multiplies one more such factor, and 1 - y^2
      // is absolute to 1.
      for (int64_t i = 0; i < n; ++i) {
        const double value = test::activation_value(activation, x[i]);
        const double derivative = test::activation_derivative(activation, x[i]);
        ASSERT_TRUE(std::abs(y[i] - value) <= 4 * kEps * std::max(1.0, std::abs(value)))
            << target << " x=" << x[i] << " y=" << y[i] << " expected " << value;
        ASSERT_TRUE(std::abs(d_x[i] - derivative * d_y[i]) <= 8 * kEps * std::abs(d_y[i]))
            << target << " x=" << x[i] << " d_x=" << d_x[i] << " expected " << derivative * d_y[i];
      }
    }
  });
}

TEST_P(ActivationsTest, KeepsRelativeAccuracyInTheTails) {
  const Activation activation = GetParam();
  test::for_each_target([&](const std::string& target) {
    // From -8 to 8 in float steps of many sizes, also near zero. e^(-x^2/2) has a relative error of
    // x^2/2 eps from rounding its argument, and the tanh form of GELU (2u)' x eps likewise: up to
    // 100 eps at |x| = 8.
    Guarded<float> x(2048), y(2048);
    for (int64_t i = 0; i < 1024; ++i) {
      x[2 * i] = static_cast<float>(8 * std::pow(0.97, static_cast<double>(i)));
      x[2 * i + 1] = -x[2 * i];
    }
    cpu::activation_forward(activation, x.data(), y.data(), x.size());
    for (int64_t i = 0; i < x.size(); ++i) {
      const double value = test::activation_value(activation, x[i]);
      const double tolerance = 4 * kEps + kEps * (1.0 + 1.5 * x[i] * x[i]);
      ASSERT_TRUE(std::abs(y[i] - value) <= tolerance * std::abs(value) + 1e-37)
          << target << " x=" << x[i] << " y=" << y[i] << " expected " << value;
    }
  });
}

TEST_P(ActivationsTest, HugeInputsAndNan) {
  const Activation activation = GetParam();
  test::for_each_target([&](const std::string& target) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    Guarded<float> x(5), y(5), d_y(5), d_x(5);
    x.assign({1e30f, -1e30f, 100.0f, -100.0f, nan});
    d_y.assign({1, 1, 1, 1, 1});
    cpu::activation_forward(activation, x.data(), y.data(), 5);
    const Guarded<float>& saved = saves_pre_activation(activation) ? x : y;
    cpu::activation_backward(activation, d_y.data(), saved.data(), d_x.data(), 5);
    for (int i = 0; i < 4; ++i) {
      const bool bounded = activation == Activation::kTanh;
      const bool linear = activation == Activation::kNone || (x[i] > 0 && !bounded);
      EXPECT_EQ(y[i],
                bounded  ? std::copysign(1.0f, x[i])
                : linear ? x[i]
                         : 0.0f)
          << target << " " << x[i];
      // Far to the left SiLU and GELU leave x e^-80 or less.
      EXPECT_TRUE(std::abs(d_x[i] - (linear ? 1.0f : 0.0f)) < 1e-28)
          << target << " " << x[i] << " " << d_x[i];
    }
    EXPECT_TRUE(std::isnan(y[4])) << target;
    if (saves_pre_activation(activation) || activation == Activation::kTanh) {
      EXPECT_TRUE(std::isnan(d_x[4])) << target;
    }
  });
}

TEST_P(ActivationsTest, InPlaceAndReproducible) {
  const Activation activation = GetParam();
  const int64_t n = 70001;  // several grains, odd
  std::vector<float> x(n), d_y(n);
  test::fill_uniform(x, -6, 6, 1);
  test::fill_uniform(d_y, -1, 1, 2);
  test::expect_reproducible<float>(
      [&] {
        std::vector<float> y(n), result(d_y);
        cpu::activation_forward(activation, x.data(), y.data(), n);
        std::vector<float> in_place(x);
        cpu::activation_forward(activation, in_place.data(), in_place.data(), n);
        test::expect_same_bits(y, in_place, "in place");
        cpu::activation_backward(activation,
                                 result.data(),
                                 saves_pre_activation(activation) ? x.data() : y.data(),
                                 result.data(),
                                 n);
        result.insert(result.end(), y.begin(), y.end());
        return result;
      },
      "activation");
}

}  // namespace
}  // namespace lockstep
