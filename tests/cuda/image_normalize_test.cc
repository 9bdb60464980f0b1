// Catches: channels that are mixed up where a vector begins amid a pixel, a last part of a vector
// lost, a wrong scale, writes outside an array.

#include "runtime/cuda/image_normalize.h"

#include "tests/fibers/kernel_test.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

template <typename T>
class CudaImageNormalizeTest : public ::testing::Test {};
TYPED_TEST_SUITE(CudaImageNormalizeTest, test::StoredTypes);

TYPED_TEST(CudaImageNormalizeTest, MatchesTheFormulaInAnyOrder) {
  using T = TypeParam;
  for (const int64_t channels : {1, 3, 4, 7}) {
    for (const int64_t pixels : {1, 5, 1024, 1357}) {
      for (const int64_t offset : {0, 1}) {
        std::vector<float> mean, std;
        for (int64_t c = 0; c < channels; ++c) {
          mean.push_back(0.3f + 0.05f * static_cast<float>(c));
          std.push_back(0.2f + 0.03f * static_cast<float>(c));
        }
        test::for_each_order([&](const std::string& order) {
          const int64_t n = pixels * channels;
          Guarded<uint8_t> x(n, offset);
          Guarded<T> y(n, offset);
          for (int64_t i = 0; i < n; ++i) x[i] = static_cast<uint8_t>(i * 89 % 256);
          cuda::image_normalize<T>(x.data(), pixels, mean, std, y.data(), nullptr);
          std::vector<double> expected;
          for (int64_t i = 0; i < n; ++i) {
            const auto c = static_cast<size_t>(i % channels);
            expected.push_back((x[i] / 255.0 - mean[c]) / std[c]);
          }
          test::expect_close(
              test::as_doubles(y),
              expected,
              [&](int64_t i) {
                return 16 * kEps +
                       test::kSpacing<T> / 2 * std::abs(expected[static_cast<size_t>(i)]);
              },
              order);
          return test::bytes_of(y);
        });
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
