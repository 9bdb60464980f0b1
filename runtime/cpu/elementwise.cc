#include "runtime/cpu/elementwise.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "runtime/base/error.h"
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

// The tree over sources [0, count), at element i. Up to eight sources are unrolled; beyond that the
// halves recurse.
template <int kCount, typename Access>
HWY_INLINE Vec fixed_tree(const float* const* sources, size_t i, Access access) {
  if constexpr (kCount == 1) {
    return access.load(sources[0] + i);
  } else {
    return hn::Add(fixed_tree<kCount / 2>(sources, i, access),
                   fixed_tree<kCount / 2>(sources + kCount / 2, i, access));
  }
}
template <typename Access>
Vec deep_tree(const float* const* sources, int count, size_t i, Access access) {
  if (count == 8) return fixed_tree<8>(sources, i, access);
  const Vec first = deep_tree(sources, count / 2, i, access);
  return hn::Add(first, deep_tree(sources + count / 2, count / 2, i, access));
}

template <int kCount>
void fixed_tree_sum(const float* const* sources, float* out, size_t begin, size_t end) {
  for_each_vector(end - begin, [&](size_t i, auto access) HWY_ATTR {
    access.store(fixed_tree<kCount>(sources, begin + i, access), out + begin + i);
  });
}

// Past the caches, where `out` is aligned: a sum that is not read soon displaces nothing, and its
// lines need not be read first.
template <int kCount>
void fixed_tree_stream(const float* const* sources, float* out, size_t begin, size_t end) {
  for_each_vector(end - begin, [&](size_t i, auto access) HWY_ATTR {
    const Vec sum = fixed_tree<kCount>(sources, begin + i, access);
    if constexpr (std::is_same_v<decltype(access), FullVector>) {
      hn::Stream(sum, F32(), out + begin + i);
    } else {
      access.store(sum, out + begin + i);
    }
  });
  hwy::FlushStream();
}

void tree_stream_kernel(
    const float* const* sources, int count, float* out, int64_t begin, int64_t end) {
  switch (count) {
    case 2: return fixed_tree_stream<2>(sources, out, begin, end);
    case 4: return fixed_tree_stream<4>(sources, out, begin, end);
    default: return fixed_tree_stream<8>(sources, out, begin, end);
  }
}

void tree_sum_kernel(
    const float* const* sources, int count, float* out, int64_t begin, int64_t end) {
  switch (count) {
    case 1: return fixed_tree_sum<1>(sources, out, begin, end);
    case 2: return fixed_tree_sum<2>(sources, out, begin, end);
    case 4: return fixed_tree_sum<4>(sources, out, begin, end);
    case 8: return fixed_tree_sum<8>(sources, out, begin, end);
    default:
      for_each_vector(end - begin, [&](size_t i, auto access) HWY_ATTR {
        access.store(deep_tree(sources, count, begin + i, access), out + begin + i);
      });
  }
}

using F64 = hn::ScalableTag<double>;
using Doubles = hn::Vec<F64>;

HWY_INLINE Doubles load_doubles(const float* x) {
  return hn::PromoteTo(F64(), hn::LoadU(hn::Rebind<float, F64>(), x));
}

// Lane k: of the elements x[k], x[k + kDistance], ... of a chunk the sum of squares, halves added.
template <size_t kDistance>
HWY_INLINE Doubles folded_squares(const float* x) {
  if constexpr (2 * kDistance == kSquaresChunk) {
    const Doubles a = load_doubles(x), b = load_doubles(x + kDistance);
    return hn::MulAdd(b, b, hn::Mul(a, a));
  } else {
    return hn::Add(folded_squares<2 * kDistance>(x), folded_squares<2 * kDistance>(x + kDistance));
  }
}

// The sums of squares of `count` whole chunks.
void chunk_squares_kernel(const float* x, int64_t count, double* sums) {
  constexpr size_t kLanes = HWY_LANES(double);
  for (int64_t i = 0; i < count; ++i) {
    HWY_ALIGN double lanes[kLanes];
    hn::Store(folded_squares<kLanes>(x + i * kSquaresChunk), F64(), lanes);
    for (size_t width = kLanes / 2; width > 0; width /= 2) {
      for (size_t k = 0; k < width; ++k) lanes[k] += lanes[k + width];
    }
    sums[i] = lanes[0];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(add_kernel);
HWY_EXPORT(scale_kernel);
HWY_EXPORT(tree_sum_kernel);
HWY_EXPORT(tree_stream_kernel);
HWY_EXPORT(chunk_squares_kernel);

namespace {
constexpr int64_t kChunksAtOnce = 16;  // of squares; few, so that adding them overlaps with loads
// Floats of a sum that would fill most of the caches.
constexpr int64_t kStreamElements = int64_t{1} << 20;
constexpr uintptr_t kStreamAlignment = 64;  // bytes: of the widest vectors
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

void tree_sum(const float* const* sources, int count, float* out, int64_t n) {
  LOCKSTEP_CHECK(count > 0 && (count & (count - 1)) == 0, "count = {}", count);
  const auto kernel = HWY_DYNAMIC_DISPATCH(tree_sum_kernel);
  const auto stream = HWY_DYNAMIC_DISPATCH(tree_stream_kernel);
  const bool elsewhere = std::find(sources, sources + count, out) == sources + count;
  const bool streams = elsewhere && n >= kStreamElements && count > 1 && count <= 8;
  parallel_for(n, kGrainElements, [&](int64_t begin, int64_t end) {
    const bool aligned = reinterpret_cast<uintptr_t>(out + begin) % kStreamAlignment == 0;
    (streams && aligned ? stream : kernel)(sources, count, out, begin, end);
  });
}

void add_squares(const float* x, int64_t n, ExactSum* sum) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(chunk_squares_kernel);
  constexpr int64_t kGrainChunks = kGrainElements / kSquaresChunk;
  parallel_for(n / kSquaresChunk, kGrainChunks, [&](int64_t begin, int64_t end) {
    ExactSum mine;
    double chunks[kChunksAtOnce];
    for (int64_t i = begin; i < end; i += kChunksAtOnce) {
      const int64_t count = std::min(kChunksAtOnce, end - i);
      kernel(x + i * kSquaresChunk, count, chunks);
      for (int64_t k = 0; k < count; ++k) mine.add(chunks[k]);
    }
    for (int i = 0; i < ExactSum::kWords; ++i) {
      if (mine.words[i] != 0)
        std::atomic_ref(sum->words[i]).fetch_add(mine.words[i], std::memory_order_relaxed);
    }
  });
  if (const int64_t rest = n % kSquaresChunk; rest > 0) {
    float last[kSquaresChunk] = {};
    std::copy_n(x + n - rest, rest, last);
    double chunk = 0;
    kernel(last, 1, &chunk);
    sum->add(chunk);
  }
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
