// Catches: windows at the border that lose or gain pixels, a gradient sent to another pixel than
// the largest, ties resolved differently from PyTorch, NaN passed over, a wrong divisor, writes
// outside an array, bits that depend on threads.

#include "runtime/cpu/ops/pooling.h"

#include "runtime/graph/window.h"
#include "tests/reference/kernel_test.h"
#include "tests/reference/pooling.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

cpu::PoolShape shape_of(
    int64_t images, int64_t height, int64_t width, int64_t channels, PoolAttributes window) {
  return {images,
          height,
          width,
          channels,
          window_count(height, window.kernel.height, window.stride.height, window.padding.height),
          window_count(width, window.kernel.width, window.stride.width, window.padding.width),
          window};
}

std::vector<cpu::PoolShape> shapes() {
  return {
      shape_of(2, 6, 6, 5, {{2, 2}, {2, 2}, {0, 0}, true}),
      shape_of(1, 7, 9, 20, {{3, 3}, {2, 2}, {1, 1}, true}),
      shape_of(2, 8, 5, 16, {{3, 2}, {1, 2}, {1, 1}, false}),
      shape_of(1, 5, 5, 33, {{5, 5}, {5, 5}, {2, 2}, false}),
      shape_of(3, 4, 7, 1, {{2, 3}, {3, 1}, {0, 2}, true}),  // rows that no window covers
  };
}

TEST(PoolingTest, MaxAgreesWithTheReference) {
  test::for_each_target([](const std::string& target) {
    for (const cpu::PoolShape& s : shapes()) {
      Guarded<float> x(static_cast<int64_t>(test::pool_inputs(s)), 1), d_x(x.size(), 3);
      Guarded<float> y(static_cast<int64_t>(test::pool_outputs(s)), 2), d_y(y.size(), 1);
      Guarded<uint8_t> place(y.size(), 1);
      test::fill_uniform(x, -4, 4, 1);
      // Many ties: which of the equal ones is chosen shows in d_x.
      for (float& value : x) value = std::round(value);
      test::fill_uniform(d_y, -1, 1, 2);
      cpu::max_pool_forward(s, x.data(), y.data(), place.data());
      cpu::max_pool_backward(s, d_y.data(), place.data(), d_x.data());
      const auto expected = test::max_pool(s, test::to_double(x), test::to_double(d_y));
      test::expect_close(y, expected.y, 0.0, "y " + target);
      test::expect_close(d_x, expected.d_x, 16 * kEps, "d_x " + target);
      Guarded<float> again(y.size());
      cpu::max_pool_forward(s, x.data(), again.data(), nullptr);
      test::expect_same_bits(y, again, "without places");
    }
  });
}

TEST(PoolingTest, NotANumberIsTheLargest) {
  const cpu::PoolShape s = shape_of(1, 2, 2, 1, {{2, 2}, {2, 2}, {0, 0}, true});
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = {1, std::numeric_limits<float>::quiet_NaN(), 3, 2};
  float y = 0;
  uint8_t place = 9;
  cpu::max_pool_forward(s, x.data(), &y, &place);
  EXPECT_TRUE(std::isnan(y));
  EXPECT_EQ(place, 1);
  x = {-infinity, -infinity, -infinity, -infinity};
  cpu::max_pool_forward(s, x.data(), &y, &place);
  EXPECT_EQ(y, -infinity);
  EXPECT_EQ(place, 0);
}

TEST(PoolingTest, AverageAgreesWithTheReference) {
  test::for_each_target([](const std::string& target) {
    for (const cpu::PoolShape& s : shapes()) {
      Guarded<float> x(static_cast<int64_t>(test::pool_inputs(s)), 1), d_x(x.size(), 3);
      Guarded<float> y(static_cast<int64_t>(test::pool_outputs(s)), 2), d_y(y.size(), 1);
      test::fill_uniform(x, -4, 4, 1);
      test::fill_uniform(d_y, -1, 1, 2);
      cpu::avg_pool_forward(s, x.data(), y.data());
      cpu::avg_pool_backward(s, d_y.data(), d_x.data());
      const auto expected = test::avg_pool(s, test::to_double(x), test::to_double(d_y));
      test::expect_close(y, expected.y, 32 * kEps, "y " + target);
      test::expect_close(d_x, expected.d_x, 16 * kEps, "d_x " + target);
    }
  });
}

TEST(PoolingTest, GlobalAverageAgreesWithTheReference) {
  test::for_each_target([](const std::string& target) {
    for (const auto& [height, channels] :
         {std::pair<int64_t, int64_t>{1, 3}, {7, 200}, {3, 16}, {8, 5}}) {
      const cpu::PoolShape s =
          shape_of(3, height, height, channels, {{height, height}, {1, 1}, {0, 0}, true});
      Guarded<float> x(static_cast<int64_t>(test::pool_inputs(s)), 1), d_x(x.size(), 3);
      Guarded<float> y(3 * channels, 2), d_y(y.size(), 1);
      test::fill_uniform(x, -4, 4, 1);
      test::fill_uniform(d_y, -1, 1, 2);
      cpu::global_avg_pool_forward(3, height * height, channels, x.data(), y.data());
      cpu::global_avg_pool_backward(3, height * height, channels, d_y.data(), d_x.data());
      const auto expected = test::avg_pool(s, test::to_double(x), test::to_double(d_y));
      test::expect_close(y, expected.y, 32 * kEps, "y " + target);
      test::expect_close(d_x, expected.d_x, kEps, "d_x " + target);
    }
  });
}

TEST(PoolingTest, BitsDoNotDependOnThreadsOrVectors) {
  const cpu::PoolShape s = shape_of(4, 33, 31, 35, {{3, 3}, {2, 2}, {1, 1}, true});
  std::vector<float> x(test::pool_inputs(s)), d_y(test::pool_outputs(s));
  test::fill_uniform(x, -4, 4, 1);
  test::fill_uniform(d_y, -1, 1, 2);
  test::expect_reproducible<float>(
      [&] {
        std::vector<float> all(d_y.size()), more(x.size());
        std::vector<uint8_t> place(d_y.size());
        cpu::max_pool_forward(s, x.data(), all.data(), place.data());
        cpu::max_pool_backward(s, d_y.data(), place.data(), more.data());
        all.insert(all.end(), more.begin(), more.end());
        std::vector<float> mean(d_y.size());
        cpu::avg_pool_forward(s, x.data(), mean.data());
        all.insert(all.end(), mean.begin(), mean.end());
        cpu::avg_pool_backward(s, d_y.data(), more.data());
        all.insert(all.end(), more.begin(), more.end());
        std::vector<float> global(4 * 35);
        cpu::global_avg_pool_forward(4, 33 * 31, 35, x.data(), global.data());
        all.insert(all.end(), global.begin(), global.end());
        return all;
      },
      "pooling");
}

}  // namespace
}  // namespace lockstep
