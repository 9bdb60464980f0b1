// Catches: channels that are mixed up where a vector begins amid a pixel, a last part of a vector
// lost, a wrong scale, writes outside an array; images mixed with the wrong one, in wrong shares or
// with padding, above all where a vector spans two images.

#include "runtime/cuda/ops/image_normalize.h"

#include "tests/fibers/kernel_test.h"
#include "tests/reference/images.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

template <typename T>
class CudaImageNormalizeTest : public ::testing::Test {
 public:
  // In each order of the threads, with arrays that begin `offset` elements past a boundary.
  static void check(const test::ImagesToNormalise& images, int64_t offset) {
    const std::vector<double> expected = images.expected();
    const auto first = [&](const std::vector<float>& values) {
      return std::vector<float>(values.begin(), values.begin() + images.channels);
    };
    const std::vector<float> mean = first(images.mean), std = first(images.std);
    const LaneContext lane{.valid_rows = images.valid, .mix = images.mix};
    test::for_each_order([&](const std::string& order) {
      Guarded<uint8_t> x(images.elements(), offset);
      x.assign(images.pixels());
      Guarded<T> y(images.elements(), offset);
      cuda::image_normalize<T>({.images = images.count,
                                .pixels = images.pixels_each,
                                .x = x.data(),
                                .mean = mean,
                                .std = std,
                                .lane = &lane,
                                .y = y.data()},
                               nullptr);
      test::expect_close(
          test::as_doubles(y),
          expected,
          [&](int64_t i) {
            return 16 * kEps + test::kSpacing<T> / 2 * std::abs(expected[static_cast<size_t>(i)]);
          },
          images.describe() + order);
      return test::bytes_of(y);
    });
  }
};
TYPED_TEST_SUITE(CudaImageNormalizeTest, test::StoredTypes);

TYPED_TEST(CudaImageNormalizeTest, MatchesTheFormulaInAnyOrder) {
  for (const int64_t channels : {1, 3, 4, 7}) {
    for (const int64_t pixels : {1, 5, 1024, 1357}) {
      for (const int64_t offset : {0, 1}) this->check({1, pixels, channels, 1, 1}, offset);
    }
  }
}

TYPED_TEST(CudaImageNormalizeTest, MixesEachImageWithTheOneAsFarFromTheEnd) {
  for (const int64_t pixels : {1, 3, 64, 357}) {
    for (const int64_t offset : {0, 1}) {
      this->check({2, pixels, 3, 2, 0.625f}, offset);
      this->check({5, pixels, 3, 5, 0.5f}, offset);     // the middle one is its own other
      this->check({5, pixels, 1, 4, 0.9f}, offset);     // the last one is padding
      this->check({3, pixels, 4, 100, 0.75f}, offset);  // fewer images than are valid
      this->check({4, pixels, 3, 0, 0.75f}, offset);
    }
  }
}

}  // namespace
}  // namespace lockstep
