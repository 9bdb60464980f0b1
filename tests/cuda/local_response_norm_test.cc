// Catches: a window shifted by a channel (even sizes), neighbours lost at the ends of a row or of a
// piece of it, a wrong gradient term, a missing barrier, writes outside an array.

#include "runtime/cuda/ops/local_response_norm.h"

#include "runtime/cpu/ops/local_response_norm.h"
#include "tests/fibers/kernel_test.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

template <typename T>
class CudaLocalResponseNormTest : public ::testing::Test {};
TYPED_TEST_SUITE(CudaLocalResponseNormTest, test::StoredTypes);

// The CPU's kernel, itself held against double precision, on the same numbers.
TYPED_TEST(CudaLocalResponseNormTest, MatchesTheCpuInAnyOrder) {
  using T = TypeParam;
  const std::vector<LocalResponseNormAttributes> kinds = {{5, 0.5f, 0.75f, 2},
                                                          {4, 1.0f, 0.75f, 1},
                                                          {3, 0.7f, 0.5f, 1},
                                                          {1, 0.3f, 0.75f, 1},
                                                          {32, 0.5f, 0.75f, 1}};
  for (const LocalResponseNormAttributes& a : kinds) {
    for (const int64_t channels : {1, 3, 16, 64, 300}) {
      const int64_t rows = channels < 16 ? 70 : 9, n = rows * channels;
      test::for_each_order([&](const std::string& order) {
        Guarded<T> x(n, 1), d_y(n, 1), y(n, 1), d_x(n, 1);
        test::fill_stored(x, -2, 2, 1);
        test::fill_stored(d_y, -1, 1, 2);
        cuda::local_response_norm_forward<T>(rows, channels, a, x.data(), y.data(), nullptr);
        cuda::local_response_norm_backward<T>(
            rows, channels, a, d_y.data(), x.data(), d_x.data(), nullptr);
        std::vector<float> wide_x, wide_d_y, wide_y(static_cast<size_t>(n)),
            wide_d_x(static_cast<size_t>(n));
        for (const T& value : x) wide_x.push_back(to_float(value));
        for (const T& value : d_y) wide_d_y.push_back(to_float(value));
        cpu::local_response_norm_forward(rows, channels, a, wide_x.data(), wide_y.data());
        cpu::local_response_norm_backward(
            rows, channels, a, wide_d_y.data(), wide_x.data(), wide_d_x.data());
        const auto tolerance = [](const std::vector<float>& values) {
          return [&](int64_t i) {
            return 64 * kEps + test::kSpacing<T> / 2 * std::abs(values[static_cast<size_t>(i)]);
          };
        };
        test::expect_close(test::as_doubles(y), wide_y, tolerance(wide_y), "y " + order);
        test::expect_close(test::as_doubles(d_x), wide_d_x, tolerance(wide_d_x), "d_x " + order);
        return test::bytes_of(y, d_x);
      });
    }
  }
}

}  // namespace
}  // namespace lockstep
