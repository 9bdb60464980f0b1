#include "runtime/graph/ops/rotary.h"

#include <cmath>
#include <cstring>

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/stored.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/rotary.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// A vector of first elements of pairs, and one of their second elements.
struct Pairs {
  Vec a, b;
};

HWY_INLINE Pairs turn(Pairs x, Vec cosine, Vec sine) {
  return {hn::NegMulAdd(x.b, sine, hn::Mul(x.a, cosine)),
          hn::MulAdd(x.a, sine, hn::Mul(x.b, cosine))};
}

HWY_INLINE Pairs load_interleaved(FullVector, const float* from) {
  Pairs x;
  hn::LoadInterleaved2(F32(), from, x.a, x.b);
  return x;
}
// A pair of bfloat16 is a word.
HWY_INLINE Pairs load_interleaved(FullVector, const BFloat16* from) {
  const auto words = hn::LoadU(U32(), reinterpret_cast<const uint32_t*>(from));
  return {half::float_of(hn::ShiftLeft<16>(words)),
          half::float_of(hn::And(words, half::bits(0xffff0000)))};
}
template <typename T>
HWY_INLINE Pairs load_interleaved(PartialVector part, const T* from) {
  HWY_ALIGN T lanes[2 * kVecLanes] = {};
  std::memcpy(lanes, from, 2 * part.count * sizeof(T));
  return load_interleaved(FullVector{}, lanes);
}

HWY_INLINE void store_interleaved(FullVector, Pairs y, float* to) {
  hn::StoreInterleaved2(y.a, y.b, F32(), to);
}
HWY_INLINE void store_interleaved(FullVector, Pairs y, BFloat16* to) {
  const auto a = half::bits_of(half::AsBF16::round(y.a));
  const auto b = half::bits_of(half::AsBF16::round(y.b));
  hn::StoreU(hn::Or(hn::ShiftRight<16>(a), b), U32(), reinterpret_cast<uint32_t*>(to));
}
template <typename T>
HWY_INLINE void store_interleaved(PartialVector part, Pairs y, T* to) {
  HWY_ALIGN T lanes[2 * kVecLanes];
  store_interleaved(FullVector{}, y, lanes);
  std::memcpy(to, lanes, 2 * part.count * sizeof(T));
}

// Rotates one head.
template <bool kInterleaved, typename T>
HWY_INLINE void rotate_head(
    int64_t pairs, const T* x, const float* cosines, const float* sines, T* y) {
  for_each_vector(pairs, [&](size_t i, auto access) HWY_ATTR {
    const Vec cosine = access.load(cosines + i), sine = access.load(sines + i);
    if constexpr (kInterleaved) {
      store_interleaved(access, turn(load_interleaved(access, x + 2 * i), cosine, sine), y + 2 * i);
    } else {
      const Pairs turned = turn({access.load(x + i), access.load(x + pairs + i)}, cosine, sine);
      access.store(turned.a, y + i);
      access.store(turned.b, y + pairs + i);
    }
  });
}

// Rows [begin, end) of the B * T rows.
template <typename T>
HWY_INLINE void rotate_rows(const graph::Rotation<T>& op, int64_t begin, int64_t end) {
  const int64_t pairs = op.pairs(), head_size = op.attributes.head_size;
  const int64_t rotary_size = op.attributes.rotary_size;
  const int64_t rotated_columns = op.attributes.rotated_heads * head_size;
  for (int64_t row = begin; row < end; ++row) {
    const float* const cosines = op.cosines + row % op.angle_rows * pairs;
    const float* const sines = op.sines + row % op.angle_rows * pairs;
    const T* const x = op.x + row * op.width;
    T* const y = op.y + row * op.width;
    for (int64_t head = 0; head < rotated_columns; head += head_size) {
      if (op.attributes.interleaved) {
        rotate_head<true>(pairs, x + head, cosines, sines, y + head);
      } else {
        rotate_head<false>(pairs, x + head, cosines, sines, y + head);
      }
    }
    if (x == y) continue;
    for (int64_t rest = rotary_size; rest < rotated_columns; rest += head_size)
      std::memcpy(y + rest, x + rest, (head_size - rotary_size) * sizeof(T));
    std::memcpy(y + rotated_columns, x + rotated_columns, (op.width - rotated_columns) * sizeof(T));
  }
}

void rotary_kernel(AnyStored<graph::Rotation> stored, int64_t begin, int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR { rotate_rows(op, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(rotary_kernel);

namespace {

// Cost of a cosine and a sine in double precision, in elements of a memory-bound kernel.
constexpr int64_t kAngleCost = 32;

// Rows [begin, end) of the tables. Compiled once, for any CPU, so that all instruction sets get the
// same bits.
template <typename T>
void fill_tables(const graph::Rotation<T>& op, int64_t begin, int64_t end) {
  const int64_t pairs = op.pairs();
  for (int64_t row = begin; row < end; ++row) {
    const auto position = static_cast<double>(op.positions != nullptr ? op.positions[row] : row);
    for (int64_t i = 0; i < pairs; ++i) {
      const double angle = position * op.frequencies[i];
      const double sine = std::sin(angle);
      op.cosines[row * pairs + i] = static_cast<float>(std::cos(angle));
      op.sines[row * pairs + i] = static_cast<float>(op.back ? -sine : sine);
    }
  }
}

size_t workspace_bytes(const graph::OpCall& call) {
  return graph::Rotation<float>{call}.workspace_bytes();
}

template <typename T>
void run(const graph::Rotation<T>& op) {
  for (int64_t i = 0; i < op.pairs(); ++i)
    op.frequencies[i] = graph::rotary_frequency(op.attributes, op.time, i);
  parallel_for(op.angle_rows, grain_rows(op.pairs() * kAngleCost), [&](int64_t begin, int64_t end) {
    fill_tables(op, begin, end);
  });
  in_parallel(op.rows, grain_rows(op.width), HWY_DYNAMIC_DISPATCH(rotary_kernel), op);
}

constexpr exec::Implementation kRows[] = {
    native_row<run<float>, run<BFloat16>, workspace_bytes>(graph::OpKind::kRotary, "simd"),
    native_row<run<float>, run<BFloat16>, workspace_bytes>(graph::OpKind::kRotaryBackward, "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuRotary = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
