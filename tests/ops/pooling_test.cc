// Catches: windows at the border that lose or gain pixels, a gradient sent to another pixel than
// the largest, ties resolved differently from PyTorch, NaN passed over, a wrong divisor, channels
// lost at the border of vectors.
#include "runtime/graph/ops/pooling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

// Whether window i of `count` has a part of pixel p of `size`: the intervals [i / count, (i + 1) /
// count) and [p / size, (p + 1) / size) meet. That is what PyTorch's floor and ceil come to.
bool meets(int64_t i, int64_t count, int64_t p, int64_t size) {
  return i * size < (p + 1) * count && p * count < (i + 1) * size;
}

template <typename F>
void each_adaptive_tap(const graph::PoolShape& s, F f) {
  for (int64_t out = 0; out < s.images * s.out_height * s.out_width * s.channels; ++out) {
    const int64_t c = out % s.channels, column = out / s.channels % s.out_width,
                  row = out / s.channels / s.out_width % s.out_height,
                  image = out / s.channels / s.out_width / s.out_height;
    for (int64_t h = 0; h < s.height; ++h) {
      for (int64_t v = 0; v < s.width; ++v) {
        if (meets(row, s.out_height, h, s.height) && meets(column, s.out_width, v, s.width))
          f(out, 0, ((image * s.height + h) * s.width + v) * s.channels + c);
      }
    }
  }
}

// Calls f(element of y, tap of its window, element of x) for all taps that are on the image.
template <typename F>
void each_tap(const graph::PoolShape& s, F f) {
  const graph::PoolAttributes& w = s.window;
  if (w.adaptive) return each_adaptive_tap(s, f);
  int64_t out = 0;
  for (int64_t place = 0; place < s.images * s.out_height * s.out_width; ++place) {
    const int64_t image = place / s.out_width / s.out_height,
                  top = place / s.out_width % s.out_height * w.stride.height - w.padding.height,
                  left = place % s.out_width * w.stride.width - w.padding.width;
    for (int64_t c = 0; c < s.channels; ++c, ++out) {
      for (int64_t tap = 0; tap < w.kernel.height * w.kernel.width; ++tap) {
        const int64_t h = top + tap / w.kernel.width * w.dilation.height,
                      v = left + tap % w.kernel.width * w.dilation.width;
        if (h < 0 || h >= s.height || v < 0 || v >= s.width) continue;
        f(out, tap, ((image * s.height + h) * s.width + v) * s.channels + c);
      }
    }
  }
}

int64_t inputs_of(const graph::PoolShape& s) { return s.images * s.height * s.width * s.channels; }
int64_t outputs_of(const graph::PoolShape& s) {
  return s.images * s.out_height * s.out_width * s.channels;
}

void max_pool(const graph::OpCall& call) {
  const graph::PoolForward<double> op{call};
  std::vector<int64_t> best(static_cast<size_t>(outputs_of(op.shape)), -1);
  each_tap(op.shape, [&](int64_t out, int64_t tap, int64_t in) {
    int64_t& largest = best[static_cast<size_t>(out)];
    if (largest >= 0 && !(op.x[in] > op.x[largest] || std::isnan(op.x[in]))) return;
    largest = in;
    op.y[out] = op.x[in];
    if (op.place != nullptr) op.place[out] = static_cast<uint8_t>(tap);
  });
}

void max_pool_backward(const graph::OpCall& call) {
  const graph::PoolBackward<double> op{call};
  std::fill_n(op.d_x, inputs_of(op.shape), 0.0);
  each_tap(op.shape, [&](int64_t out, int64_t tap, int64_t in) {
    if (op.place[out] == tap) op.d_x[in] += op.d_y[out];
  });
}

// What each window's sum is divided by.
std::vector<double> divisors(const graph::PoolShape& s) {
  std::vector<double> pixels(static_cast<size_t>(outputs_of(s)), 0);
  each_tap(s, [&](int64_t out, int64_t, int64_t) { ++pixels[static_cast<size_t>(out)]; });
  const graph::PoolAttributes& w = s.window;
  if (!w.count_include_pad || w.adaptive) return pixels;
  // Every place of the window that is not beyond the padding.
  const int64_t bottom = s.height + (w.behind.height < 0 ? w.padding.height : w.behind.height),
                right = s.width + (w.behind.width < 0 ? w.padding.width : w.behind.width);
  for (size_t out = 0; out < pixels.size(); ++out) {
    const int64_t place = static_cast<int64_t>(out) / s.channels,
                  top = place / s.out_width % s.out_height * w.stride.height - w.padding.height,
                  left = place % s.out_width * w.stride.width - w.padding.width;
    pixels[out] = 0;
    for (int64_t tap = 0; tap < w.kernel.height * w.kernel.width; ++tap) {
      if (top + tap / w.kernel.width < bottom && left + tap % w.kernel.width < right) ++pixels[out];
    }
  }
  return pixels;
}

void avg_pool(const graph::OpCall& call) {
  const graph::PoolForward<double> op{call};
  const std::vector<double> count = divisors(op.shape);
  std::fill_n(op.y, outputs_of(op.shape), 0.0);
  each_tap(op.shape, [&](int64_t out, int64_t, int64_t in) {
    op.y[out] += op.x[in] / count[static_cast<size_t>(out)];
  });
}

void avg_pool_backward(const graph::OpCall& call) {
  const graph::PoolBackward<double> op{call};
  const std::vector<double> count = divisors(op.shape);
  std::fill_n(op.d_x, inputs_of(op.shape), 0.0);
  each_tap(op.shape, [&](int64_t out, int64_t, int64_t in) {
    op.d_x[in] += op.d_y[out] / count[static_cast<size_t>(out)];
  });
}

void global_avg_pool(const graph::OpCall& call) {
  const graph::GlobalAvgPoolForward<double> op{call};
  std::fill_n(op.y, op.images * op.channels, 0.0);
  for (int64_t i = 0; i < op.images * op.pixels * op.channels; ++i)
    op.y[i / op.channels / op.pixels * op.channels + i % op.channels] +=
        op.x[i] / static_cast<double>(op.pixels);
}

void global_avg_pool_backward(const graph::OpCall& call) {
  const graph::GlobalAvgPoolBackward<double> op{call};
  for (int64_t i = 0; i < op.images * op.pixels * op.channels; ++i)
    op.d_x[i] = op.d_y[i / op.channels / op.pixels * op.channels + i % op.channels] /
                static_cast<double>(op.pixels);
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kMaxPool, "double", max_pool},
    {graph::OpKind::kMaxPoolBackward, "double", max_pool_backward},
    {graph::OpKind::kAvgPool, "double", avg_pool},
    {graph::OpKind::kAvgPoolBackward, "double", avg_pool_backward},
    {graph::OpKind::kGlobalAvgPool, "double", global_avg_pool},
    {graph::OpKind::kGlobalAvgPoolBackward, "double", global_avg_pool_backward},
};

// Inputs are below 4 in size, and a window has some 25 of them, the largest image 1089.
Tolerance tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t i) {
  if (expected.kind() == graph::OpKind::kMaxPool) return {0, 0};
  const double size = std::abs(expected.output<double>(output)[i]);
  switch (expected.kind()) {
    case graph::OpKind::kMaxPoolBackward: return {16, size};
    default: return {64, size};
  }
}

enum class Kind { kMax, kAvg, kGlobalAvg, kAdaptiveAvg };

OpTest pooling(Kind kind, const Shape& x, const graph::PoolAttributes& window) {
  return {.name = "pooling " + std::to_string(static_cast<int>(kind)) + " of " + to_string(x),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId images = builder.activation_tensor("x", x);
                if (kind == Kind::kMax) ops::max_pool(builder, "y", images, window);
                if (kind == Kind::kAvg) ops::avg_pool(builder, "y", images, window);
                if (kind == Kind::kAdaptiveAvg)
                  ops::adaptive_avg_pool(builder, "y", images, window.kernel);
                if (kind == Kind::kGlobalAvg) ops::global_avg_pool(builder, "y", images);
              },
          .reference = kReference,
          .cpu = cpu::kCpuPooling,
          .cuda = cuda::kCudaPooling,
          .tolerance = tolerance,
          .low = -4,
          .high = 4};
}

struct Case {
  Shape x;
  graph::PoolAttributes window;
};

std::vector<Case> cases() {
  return {
      {{2, 6, 6, 5}, {{2, 2}, {2, 2}, {0, 0}, true}},
      {{1, 7, 9, 24}, {{3, 3}, {2, 2}, {1, 1}, true}},
      {{2, 8, 5, 16}, {{3, 2}, {1, 2}, {1, 1}, false}},
      {{1, 5, 5, 33}, {{5, 5}, {5, 5}, {2, 2}, false}},
      {{3, 4, 7, 1}, {{2, 3}, {3, 1}, {0, 2}, true}},    // rows that no window covers
      {{1, 3, 3, 264}, {{2, 2}, {1, 1}, {0, 0}, true}},  // more than one tile of channels
  };
}

TEST(PoolingTest, ReferencesMatchFiniteDifferences) {
  const Case odd = {{1, 4, 5, 2}, {{3, 2}, {1, 2}, {1, 1}, false}};
  for (const Kind kind : {Kind::kMax, Kind::kAvg, Kind::kGlobalAvg, Kind::kAdaptiveAvg})
    check_gradient_of_reference(pooling(kind, odd.x, odd.window));
}

TEST(PoolingTest, MaxMatchesTheReferenceOnAllDevices) {
  for (const Case& at : cases()) {
    OpTest test = pooling(Kind::kMax, at.x, at.window);
    check_on_all_devices(test);
    // Many ties: which of the equal ones is chosen shows in `place`.
    test.value = [](const std::string&, int64_t i) { return static_cast<double>(i * 37 % 5); };
    check_on_all_devices(test);
    test.gradients = 0;  // without places
    check_on_all_devices(test);
  }
}

TEST(PoolingTest, NotANumberIsTheLargest) {
  OpTest test = pooling(Kind::kMax, {1, 2, 2, 1}, {{2, 2}, {2, 2}, {0, 0}, true});
  test.value = [](const std::string& tensor, int64_t i) {
    return tensor == "x" && i == 1 ? std::nan("") : 4 - static_cast<double>(i);
  };
  check_on_all_devices(test);
  test.value = [](const std::string&, int64_t) { return -std::numeric_limits<double>::infinity(); };
  test.gradients = 0;
  test.tolerance = [](const graph::OpCall&, graph::OutputName, int64_t) { return Tolerance{0, 0}; };
  EXPECT_EQ(first_output_of_reference(test)[0], -std::numeric_limits<double>::infinity());
}

TEST(PoolingTest, AverageMatchesTheReferenceOnAllDevices) {
  for (const Case& at : cases()) check_on_all_devices(pooling(Kind::kAvg, at.x, at.window));
}

// Padding of other extents on each side, windows that reach beyond it, and taps that are apart.
TEST(PoolingTest, UnevenWindowsMatchTheReferenceOnAllDevices) {
  graph::PoolAttributes uneven = {{3, 2}, {2, 2}, {1, 0}, true};
  uneven.behind = {0, 1};
  graph::PoolAttributes beyond = {{3, 3}, {2, 3}, {1, 1}, true};
  beyond.behind = {0, 1};
  beyond.outputs = {5, 4};  // one more of each than fit
  graph::PoolAttributes apart = {{3, 2}, {2, 1}, {2, 1}, true};
  apart.behind = {1, 2};
  apart.dilation = {2, 3};
  const Shape x = {2, 8, 9, 20};
  for (const bool include : {true, false}) {
    for (graph::PoolAttributes window : {uneven, beyond}) {
      window.count_include_pad = include;
      check_gradient_of_reference(pooling(Kind::kAvg, {1, 8, 9, 1}, window));
      check_on_all_devices(pooling(Kind::kAvg, x, window));
    }
  }
  for (const graph::PoolAttributes& window : {uneven, beyond, apart}) {
    check_gradient_of_reference(pooling(Kind::kMax, {1, 8, 9, 1}, window));
    check_on_all_devices(pooling(Kind::kMax, x, window));
  }
}

// Fewer pixels than windows, as many, a multiple, and what is none; other ones in each direction.
TEST(PoolingTest, AdaptiveAverageMatchesTheReferenceOnAllDevices) {
  for (const auto& [x, outputs] : std::vector<std::pair<Shape, graph::Extent2d>>{
           {{2, 1, 1, 5}, {7, 7}},
           {{2, 2, 2, 24}, {7, 7}},
           {{1, 3, 5, 33}, {6, 6}},
           {{2, 6, 7, 16}, {6, 6}},
           {{1, 9, 14, 8}, {7, 7}},
           {{1, 13, 3, 264}, {6, 6}},
           {{3, 5, 4, 1}, {2, 3}},
       })
    check_on_all_devices(pooling(Kind::kAdaptiveAvg, x, {outputs, {1, 1}}));
}

TEST(PoolingTest, GlobalAverageMatchesTheReferenceOnAllDevices) {
  for (const Shape& x : {Shape{3, 1, 1, 3},
                         Shape{3, 7, 7, 200},
                         Shape{2, 3, 40, 5},
                         Shape{1, 2, 1, 520},
                         Shape{4, 33, 31, 35}})
    check_on_all_devices(pooling(Kind::kGlobalAvg, x, {}));
}

TEST(PoolingTest, LargeImagesAreSharedOutWithoutLoss) {
  const graph::PoolAttributes window = {{3, 3}, {2, 2}, {1, 1}, true};
  for (const Kind kind : {Kind::kMax, Kind::kAvg})
    check_on_all_devices(pooling(kind, {4, 33, 31, 35}, window));
}

}  // namespace
}  // namespace lockstep::test
