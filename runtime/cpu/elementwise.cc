#include "runtime/cpu/elementwise.h"

#include <algorithm>
#include <cstdint>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/elementwise.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

void add_kernel(const float* a, const float* b, float* out, int64_t n) {
  for_each_vector(n, [&](size_t i, auto access) HWY_ATTR {
    access.store(hn::Add(access.load(a + i), access.load(b + i)), out + i);
  });
}

void scale_kernel(float* x, float factor, int64_t n) {
  const Vec by = set(factor);
  for_each_vector(n, [&](size_t i, auto access) HWY_ATTR {
    access.store(hn::Mul(access.load(x + i), by), x + i);
  });
}

// The squares are exact in double precision (24 + 24 bits), so only the additions round, in an
// order that the 16 lanes fix.
double sum_of_squares_kernel(const float* x, int64_t n) {
  double lanes[kRowLanes] = {};
  int64_t i = 0;
  for (; i + static_cast<int64_t>(kRowLanes) <= n; i += kRowLanes) {
    for (size_t k = 0; k < kRowLanes; ++k) {
      const double value = x[i + k];
      lanes[k] += value * value;
    }
  }
  for (size_t k = 0; i < n; ++i, ++k) lanes[k] += static_cast<double>(x[i]) * x[i];
  for (size_t width = kRowLanes / 2; width > 0; width /= 2) {
    for (size_t k = 0; k < width; ++k) lanes[k] += lanes[k + width];
  }
  return lanes[0];
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(add_kernel);
HWY_EXPORT(scale_kernel);
HWY_EXPORT(sum_of_squares_kernel);

namespace {
constexpr int64_t kSquaresBlock = 4096;

int64_t squares_blocks(int64_t n) { return (n + kSquaresBlock - 1) / kSquaresBlock; }
}  // namespace

void add(const float* a, const float* b, float* out, int64_t n) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(add_kernel);
  parallel_for(n, kGrainElements, [&](int64_t begin, int64_t end) {
    kernel(a + begin, b + begin, out + begin, end - begin);
  });
}

void accumulate(const float* from, float* to, int64_t n) { add(to, from, to, n); }

void scale(float* x, float factor, int64_t n) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(scale_kernel);
  parallel_for(n, kGrainElements, [&](int64_t begin, int64_t end) {
    kernel(x + begin, factor, end - begin);
  });
}

void fill(float* x, float value, int64_t n) {
  parallel_for(
      n, kGrainElements, [&](int64_t begin, int64_t end) { std::fill(x + begin, x + end, value); });
}

size_t sum_of_squares_workspace_bytes(int64_t n) { return squares_blocks(n) * sizeof(double); }

double sum_of_squares(const float* x, int64_t n, double* workspace) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(sum_of_squares_kernel);
  const int64_t blocks = squares_blocks(n);
  parallel_for(blocks, kGrainElements / kSquaresBlock, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * kSquaresBlock;
      workspace[block] = kernel(x + begin, std::min(kSquaresBlock, n - begin));
    }
  });
  double sum = 0;
  for (int64_t block = 0; block < blocks; ++block) sum += workspace[block];
  return sum;
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
