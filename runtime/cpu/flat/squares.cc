#include "runtime/cpu/flat/squares.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "runtime/base/bit_checksum.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/flat/squares.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

using F64 = hn::ScalableTag<double>;
using Doubles = hn::Vec<F64>;

HWY_INLINE Doubles load_doubles(const float* x) {
  return hn::PromoteTo(F64(), hn::LoadU(hn::Rebind<float, F64>(), x));
}

// Returns in lane k the sum of squares of the elements x[k], x[k + kDistance], ... of a chunk. The
// halves of these elements are summed separately and then added.
template <size_t kDistance>
HWY_INLINE Doubles folded_squares(const float* x) {
  if constexpr (2 * kDistance == kSquaresChunk) {
    const Doubles a = load_doubles(x), b = load_doubles(x + kDistance);
    return hn::MulAdd(b, b, hn::Mul(a, a));
  } else {
    return hn::Add(folded_squares<2 * kDistance>(x), folded_squares<2 * kDistance>(x + kDistance));
  }
}

// The sums of squares of `count` full chunks. Prefetches what follows them, because the hardware
// prefetcher stops at each page.
void chunk_squares_kernel(const float* x, int64_t count, double* sums) {
  constexpr size_t kLanes = HWY_LANES(double);
  constexpr size_t kAhead = 1024, kLine = 16;  // floats
  for (int64_t i = 0; i < count; ++i) {
    const float* const ahead = x + i * kSquaresChunk + kAhead;
    for (size_t k = 0; k < kSquaresChunk; k += kLine) __builtin_prefetch(ahead + k, 0, 2);
    HWY_ALIGN double lanes[kLanes];
    hn::Store(folded_squares<kLanes>(x + i * kSquaresChunk), F64(), lanes);
    for (size_t width = kLanes / 2; width > 0; width /= 2) {
      for (size_t k = 0; k < width; ++k) lanes[k] += lanes[k + width];
    }
    sums[i] = lanes[0];
  }
}

uint32_t bit_checksum_kernel(const float* x, int64_t n) {
  uint32_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += lockstep::bits_of(x[i]);
  return sum;
}

uint32_t halves_bit_checksum_kernel(const uint16_t* x, int64_t n) {
  uint32_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(chunk_squares_kernel);
HWY_EXPORT(bit_checksum_kernel);
HWY_EXPORT(halves_bit_checksum_kernel);

namespace {
constexpr int64_t kChunksAtOnce = 16;  // few, so that adding their sums overlaps with loads

template <typename T, typename Kernel>
uint32_t bit_checksum_by(Kernel kernel, const T* x, int64_t n) {
  std::atomic<uint32_t> sum = 0;
  parallel_for(n, kGrainElements, [&](int64_t begin, int64_t end) {
    sum.fetch_add(kernel(x + begin, end - begin), std::memory_order_relaxed);
  });
  return sum;
}

}  // namespace

uint32_t bit_checksum(const float* x, int64_t n) {
  return bit_checksum_by(HWY_DYNAMIC_DISPATCH(bit_checksum_kernel), x, n);
}

uint32_t bit_checksum(const uint16_t* x, int64_t n) {
  return bit_checksum_by(HWY_DYNAMIC_DISPATCH(halves_bit_checksum_kernel), x, n);
}

// The bits are summed right after the squares, while the data are in the cache.
void add_squares(const float* x, int64_t n, ExactSum* sum, uint32_t* bits) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(chunk_squares_kernel);
  const auto bits_kernel = HWY_DYNAMIC_DISPATCH(bit_checksum_kernel);
  constexpr int64_t kGrainChunks = kGrainElements / kSquaresChunk;
  parallel_for(n / kSquaresChunk, kGrainChunks, [&](int64_t begin, int64_t end) {
    ExactSum mine;
    uint32_t my_bits = 0;
    double chunks[kChunksAtOnce];
    for (int64_t i = begin; i < end; i += kChunksAtOnce) {
      const int64_t count = std::min(kChunksAtOnce, end - i);
      kernel(x + i * kSquaresChunk, count, chunks);
      if (bits != nullptr) my_bits += bits_kernel(x + i * kSquaresChunk, count * kSquaresChunk);
      for (int64_t k = 0; k < count; ++k) mine.add(chunks[k]);
    }
    if (bits != nullptr) std::atomic_ref(*bits).fetch_add(my_bits, std::memory_order_relaxed);
    for (int i = 0; i < ExactSum::kWords; ++i) {
      if (mine.words[i] != 0)
        std::atomic_ref(sum->words[i]).fetch_add(mine.words[i], std::memory_order_relaxed);
    }
  });
  if (const int64_t rest = n % kSquaresChunk; rest > 0) {
    float last[kSquaresChunk] = {};
    std::copy_n(x + n - rest, rest, last);
    if (bits != nullptr) *bits += bits_kernel(x + n - rest, rest);
    double chunk = 0;
    kernel(last, 1, &chunk);
    sum->add(chunk);
  }
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
