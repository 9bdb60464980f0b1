// Catches: a window shifted by a channel (even sizes), neighbours lost at the ends of a row or of a
// piece of it, a wrong gradient term, writes outside an array, bits that depend on threads.

#include "runtime/cpu/ops/local_response_norm.h"

#include "tests/reference/kernel_test.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

// In double precision.
std::vector<double> reference(const std::vector<double>& x,
                              int64_t channels,
                              const LocalResponseNormAttributes& a) {
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const auto c = static_cast<int64_t>(i) % channels;
    double sum = 0;
    for (int64_t k = c - a.size / 2; k < c - a.size / 2 + a.size; ++k) {
      if (k >= 0 && k < channels) sum += std::pow(x[i + static_cast<size_t>(k - c)], 2);
    }
    y[i] = x[i] / std::pow(a.k + a.alpha / static_cast<double>(a.size) * sum, a.beta);
  }
  return y;
}

std::vector<LocalResponseNormAttributes> kinds() {
  return {{5, 0.5f, 0.75f, 2}, {4, 1.0f, 0.75f, 1}, {3, 0.7f, 0.5f, 1}, {1, 0.3f, 0.75f, 1}};
}

TEST(LocalResponseNormTest, ForwardAgreesWithTheReference) {
  test::for_each_target([](const std::string& target) {
    for (const auto& a : kinds()) {
      for (const int64_t channels : {3, 64, 600}) {
        Guarded<float> x(3 * channels, 1), y(x.size(), 2);
        test::fill_uniform(x, -2, 2, 1);
        cpu::local_response_norm_forward(3, channels, a, x.data(), y.data());
        test::expect_close(y, reference(test::to_double(x), channels, a), 16 * kEps, target);
      }
    }
  });
}

// Against the slope of the reference itself.
TEST(LocalResponseNormTest, BackwardIsTheSlope) {
  test::for_each_target([](const std::string& target) {
    for (const auto& a : kinds()) {
      for (const int64_t channels : {4, 40, 300}) {
        Guarded<float> x(channels, 1), d_y(channels, 2), d_x(channels, 3);
        test::fill_uniform(x, -2, 2, 1);
        test::fill_uniform(d_y, -1, 1, 2);
        cpu::local_response_norm_backward(1, channels, a, d_y.data(), x.data(), d_x.data());
        std::vector<double> x64 = test::to_double(x);
        const auto f = [&] {
          const std::vector<double> y = reference(x64, channels, a);
          double sum = 0;
          for (size_t i = 0; i < y.size(); ++i) sum += d_y[static_cast<int64_t>(i)] * y[i];
          return sum;
        };
        test::expect_gradient(f, x64, test::to_double(d_x), target, 2e-6);
      }
    }
  });
}

TEST(LocalResponseNormTest, BitsDoNotDependOnThreadsOrVectors) {
  const int64_t rows = 700, channels = 100;
  std::vector<float> x(rows * channels), d_y(x.size());
  test::fill_uniform(x, -2, 2, 1);
  test::fill_uniform(d_y, -1, 1, 2);
  test::expect_reproducible<float>(
      [&] {
        std::vector<float> y(x.size()), d_x(x.size());
        cpu::local_response_norm_forward(rows, channels, kinds()[0], x.data(), y.data());
        cpu::local_response_norm_backward(
            rows, channels, kinds()[0], d_y.data(), x.data(), d_x.data());
        y.insert(y.end(), d_x.begin(), d_x.end());
        return y;
      },
      "local_response_norm");
}

}  // namespace
}  // namespace lockstep
