// Catches: windows at the border that lose or gain pixels, a gradient sent to another pixel than
// the largest, ties resolved differently from the CPU, NaN passed over, a wrong divisor, channels
// lost at the border of vectors, results that depend on the order of threads, writes outside an
// array.

#include "runtime/cuda/ops/pooling.h"

#include "tests/fibers/kernel_test.h"
#include "tests/reference/pooling.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

struct Case {
  int64_t images, height, width, channels;
  PoolAttributes window;
  int64_t offset = 0;  // of all arrays, in elements from a multiple of 64 bytes

  cpu::PoolShape shape() const {
    const PoolAttributes& w = window;
    return {images,
            height,
            width,
            channels,
            (height + 2 * w.padding.height - w.kernel.height) / w.stride.height + 1,
            (width + 2 * w.padding.width - w.kernel.width) / w.stride.width + 1,
            w};
  }
};

std::vector<Case> cases() {
  return {
      {2, 6, 6, 5, {{2, 2}, {2, 2}, {0, 0}, true}},
      {1, 7, 9, 24, {{3, 3}, {2, 2}, {1, 1}, true}},
      {2, 8, 5, 16, {{3, 2}, {1, 2}, {1, 1}, false}},
      {1, 5, 5, 33, {{5, 5}, {5, 5}, {2, 2}, false}},
      {3, 4, 7, 1, {{2, 3}, {3, 1}, {0, 2}, true}},  // rows that no window covers
      {1, 6, 6, 8, {{3, 3}, {2, 2}, {1, 1}, true}, 1},
      {1, 3, 3, 264, {{2, 2}, {1, 1}, {0, 0}, true}},  // more than one tile of channels
  };
}

cuda::PoolShape cuda_shape(const cpu::PoolShape& s) {
  return {s.images, s.height, s.width, s.channels, s.out_height, s.out_width, s.window};
}

template <typename T>
class CudaPoolingTest : public ::testing::Test {};
TYPED_TEST_SUITE(CudaPoolingTest, test::StoredTypes);

TYPED_TEST(CudaPoolingTest, MaxMatchesTheReferenceInAnyOrder) {
  using T = TypeParam;
  for (const Case& at : cases()) {
    const cpu::PoolShape s = at.shape();
    const auto in = static_cast<int64_t>(test::pool_inputs(s)),
               out = static_cast<int64_t>(test::pool_outputs(s));
    test::for_each_order([&](const std::string& order) {
      Guarded<T> x(in, at.offset), d_x(in, at.offset), y(out, at.offset), d_y(out, at.offset);
      Guarded<uint8_t> place(out, at.offset);
      test::fill_stored(x, -4, 4, 1);
      // Many ties: which of the equal ones is chosen shows in d_x.
      for (T& value : x) value = round_to<T>(std::round(to_float(value)));
      test::fill_stored(d_y, -1, 1, 2);
      cuda::max_pool_forward<T>(cuda_shape(s), x.data(), y.data(), place.data(), nullptr);
      cuda::max_pool_backward<T>(cuda_shape(s), d_y.data(), place.data(), d_x.data(), nullptr);
      const test::PoolResult expected =
          test::max_pool(s, test::as_doubles(x), test::as_doubles(d_y));
      test::expect_close(test::as_doubles(y), expected.y, 0.0, "y " + order);
      test::expect_close(
          test::as_doubles(d_x),
          expected.d_x,
          [&](int64_t i) { return 16 * kEps + test::kSpacing<T> / 2 * std::abs(expected.d_x[i]); },
          "d_x " + order);
      Guarded<T> again(out);
      cuda::max_pool_forward<T>(cuda_shape(s), x.data(), again.data(), nullptr, nullptr);
      EXPECT_EQ(test::bytes_of(y), test::bytes_of(again)) << "without places";
      return test::bytes_of(y, place, d_x);
    });
  }
}

TEST(CudaMaxPoolTest, NotANumberIsTheLargest) {
  const cuda::PoolShape s = {1, 2, 2, 1, 1, 1, {{2, 2}, {2, 2}, {0, 0}, true}};
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = {1, std::numeric_limits<float>::quiet_NaN(), 3, 2};
  float y = 0;
  uint8_t place = 9;
  cuda::max_pool_forward(s, x.data(), &y, &place, nullptr);
  EXPECT_TRUE(std::isnan(y));
  EXPECT_EQ(place, 1);
  x = {-infinity, -infinity, -infinity, -infinity};
  cuda::max_pool_forward(s, x.data(), &y, &place, nullptr);
  EXPECT_EQ(y, -infinity);
  EXPECT_EQ(place, 0);
}

TYPED_TEST(CudaPoolingTest, AverageMatchesTheReferenceInAnyOrder) {
  using T = TypeParam;
  for (const Case& at : cases()) {
    const cpu::PoolShape s = at.shape();
    const auto in = static_cast<int64_t>(test::pool_inputs(s)),
               out = static_cast<int64_t>(test::pool_outputs(s));
    test::for_each_order([&](const std::string& order) {
      Guarded<T> x(in, at.offset), d_x(in, at.offset), y(out, at.offset), d_y(out, at.offset);
      test::fill_stored(x, -4, 4, 1);
      test::fill_stored(d_y, -1, 1, 2);
      cuda::avg_pool_forward<T>(cuda_shape(s), x.data(), y.data(), nullptr);
      cuda::avg_pool_backward<T>(cuda_shape(s), d_y.data(), d_x.data(), nullptr);
      const test::PoolResult expected =
          test::avg_pool(s, test::as_doubles(x), test::as_doubles(d_y));
      const auto tolerance = [](const std::vector<double>& values) {
        return [&](int64_t i) {
          return 64 * kEps + test::kSpacing<T> / 2 * std::abs(values[static_cast<size_t>(i)]);
        };
      };
      test::expect_close(test::as_doubles(y), expected.y, tolerance(expected.y), "y " + order);
      test::expect_close(
          test::as_doubles(d_x), expected.d_x, tolerance(expected.d_x), "d_x " + order);
      return test::bytes_of(y, d_x);
    });
  }
}

// All pixels of an image are one window.
TYPED_TEST(CudaPoolingTest, GlobalAverageMatchesTheReferenceInAnyOrder) {
  using T = TypeParam;
  for (const Case& at : {Case{3, 7, 7, 40, {{7, 7}, {1, 1}, {0, 0}, true}},
                         Case{2, 3, 40, 5, {{3, 40}, {1, 1}, {0, 0}, true}},
                         Case{1, 2, 1, 520, {{2, 1}, {1, 1}, {0, 0}, true}, 1}}) {
    const cpu::PoolShape s = at.shape();
    test::for_each_order([&](const std::string& order) {
      const int64_t pixels = s.height * s.width, out = s.images * s.channels;
      Guarded<T> x(out * pixels, at.offset), d_x(out * pixels, at.offset);
      Guarded<T> y(out, at.offset), d_y(out, at.offset);
      test::fill_stored(x, -4, 4, 1);
      test::fill_stored(d_y, -1, 1, 2);
      cuda::global_avg_pool_forward<T>(s.images, pixels, s.channels, x.data(), y.data(), nullptr);
      cuda::global_avg_pool_backward<T>(
          s.images, pixels, s.channels, d_y.data(), d_x.data(), nullptr);
      const test::PoolResult expected =
          test::avg_pool(s, test::as_doubles(x), test::as_doubles(d_y));
      test::expect_close(
          test::as_doubles(y),
          expected.y,
          [&](int64_t i) { return 64 * kEps + test::kSpacing<T> / 2 * std::abs(expected.y[i]); },
          "y " + order);
      test::expect_close(
          test::as_doubles(d_x),
          expected.d_x,
          [&](int64_t i) { return kEps + test::kSpacing<T> / 2 * std::abs(expected.d_x[i]); },
          "d_x " + order);
      return test::bytes_of(y, d_x);
    });
  }
}

}  // namespace
}  // namespace lockstep
