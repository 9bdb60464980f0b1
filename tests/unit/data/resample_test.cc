// Catches weights that are not PIL's triangle, pixels outside a crop that count, borders, flips and
// channels that are mixed up: everything against one double loop per output pixel.

#include "runtime/data/images/resample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "images.h"

namespace lockstep::data {
namespace {

using test::Image;

double weight(int i, double centre, double support) {
  return std::max(0.0, 1 - std::abs(i + 0.5 - centre) / support);
}

// One output pixel, unrounded.
double reference(
    const Image& in, const ResampleAxis& rows, const ResampleAxis& columns, int y, int x, int c) {
  const double cy = rows.begin + (y + 0.5) * rows.scale,
               cx = columns.begin + (x + 0.5) * columns.scale;
  const double sy = std::max(1.0, rows.scale), sx = std::max(1.0, columns.scale);
  double sum = 0, total = 0;
  for (int i = rows.low; i < rows.high; ++i)
    for (int j = columns.low; j < columns.high; ++j) {
      const double w = weight(i, cy, sy) * weight(j, cx, sx);
      sum += w * in.at(i, j)[c];
      total += w;
    }
  return sum / total;
}

PixelView view_of(const Image& image) {
  PixelView view;
  view.origin = image.pixels.data();
  view.channels = image.channels;
  view.stride = int64_t{image.width} * image.channels;
  view.size = {image.height, image.width};
  return view;
}

// Sums of weights that are rounded to float are off by 1e-7 of 255 each: far below a hundredth.
constexpr double kRounding = 0.51;

void check(const Image& in, const ResampleAxis& rows, const ResampleAxis& columns) {
  Resampler resampler;
  for (const bool flip : {false, true}) {
    std::vector<uint8_t> out(static_cast<size_t>(rows.outputs) * columns.outputs * in.channels + 1,
                             0xAB);
    const ImageRegion region = resampler.set(rows, columns);
    EXPECT_TRUE(region.top >= rows.low && region.bottom <= rows.high);
    EXPECT_TRUE(region.left >= columns.low && region.right <= columns.high);
    resampler.run(view_of(in), flip, out.data());
    ASSERT_EQ(out.back(), 0xAB);
    for (int y = 0; y < rows.outputs; ++y)
      for (int x = 0; x < columns.outputs; ++x)
        for (int c = 0; c < in.channels; ++c) {
          const int at = flip ? columns.outputs - 1 - x : x;
          const double found =
              out[(static_cast<size_t>(y) * columns.outputs + at) * in.channels + c];
          const double wanted = reference(in, rows, columns, y, x, c);
          ASSERT_TRUE(std::abs(found - wanted) <= kRounding)
              << found << " for " << wanted << " at " << y << ", " << x << ", " << c;
        }
  }
}

TEST(Resample, IsTheTriangleFilter) {
  for (const int channels : {1, 3, 4, 5}) {
    const Image in = test::make_image(23, 31, channels);
    for (const auto& [height, width] : {std::pair(23, 31), {7, 9}, {50, 64}, {1, 1}, {23, 5}}) {
      check(in, {0, 23.0 / height, 0, 23, height}, {0, 31.0 / width, 0, 31, width});
    }
  }
}

TEST(Resample, KeepsToItsCrop) {
  const Image in = test::make_image(40, 40);
  check(in, {5, 11.0 / 8, 5, 16, 8}, {20, 3.0 / 8, 20, 23, 8});
  check(in, {0, 1.0 / 8, 0, 1, 8}, {39, 1.0 / 4, 39, 40, 4});
}

TEST(Resample, LeavesEqualSizesAlone) {
  const Image in = test::make_image(17, 19);
  Resampler resampler;
  std::vector<uint8_t> out(in.pixels.size());
  resampler.set({0, 1, 0, 17, 17}, {0, 1, 0, 19, 19});
  resampler.run(view_of(in), false, out.data());
  EXPECT_EQ(out, in.pixels);
}

TEST(Resample, AnyWindowOfAnyScale) {
  std::mt19937 random(7);
  const auto draw = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  for (int i = 0; i < 200; ++i) {
    const Image in =
        test::make_image(1 + static_cast<int>(random() % 60), 1 + static_cast<int>(random() % 60));
    const auto axis = [&](int extent) {
      ResampleAxis result;
      result.outputs = 1 + static_cast<int>(random() % 12);
      result.scale = draw(0.1, 1.0) * extent / result.outputs;
      result.begin = draw(0, extent - result.scale * result.outputs);
      result.low = static_cast<int>(result.begin);
      result.high = std::min(
          extent, static_cast<int>(std::ceil(result.begin + result.scale * result.outputs)));
      return result;
    };
    check(in, axis(in.height), axis(in.width));
  }
}

TEST(Resample, ShrinkingAnAxisKeepsItsPlace) {
  const ResampleAxis axis = shrink({30, 4, 30, 71, 10}, 4, 25);
  EXPECT_EQ(axis.begin, 7.5);
  EXPECT_EQ(axis.scale, 1);
  EXPECT_EQ(axis.low, 7);
  EXPECT_EQ(axis.high, 18);
  EXPECT_EQ(shrink({0, 8, 0, 99, 12}, 8, 12).high, 12);
}

}  // namespace
}  // namespace lockstep::data
