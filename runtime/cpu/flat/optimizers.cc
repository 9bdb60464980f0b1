#include "runtime/cpu/flat/optimizers.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "runtime/base/bit_checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/moment_block.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/flat/moment_codes.h"
#include "runtime/cpu/grain_size.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/flat/optimizers.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/flat/moment_vectors-inl.h"
#include "runtime/cpu/simd-inl.h"

// Plain loops around the updates of one element, which the compiler vectorises for each instruction
// set. So the arithmetic exists once, and the vector code cannot differ from it. The loops are
// bound by memory bandwidth.
HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Bit checksums of an array, added up while its elements are in registers.
template <bool kSummed>
struct SumBits {
  uint32_t read = 0, written = 0;
  template <typename T>
  HWY_INLINE void add_read(T value) {
    if constexpr (kSummed) read += lockstep::bits_of(value);
  }
  template <typename T>
  HWY_INLINE void add_written(T value) {
    if constexpr (kSummed) written += lockstep::bits_of(value);
  }
  void add_to(exec::ArrayChecksums& checksums, bool writes) const {
    checksums.read += read;
    checksums.written += writes ? written : read;
  }
};

// Stochastic rounding of the moments of consecutive elements.
struct RoundingOf {
  exec::RoundingKey key;
  uint32_t first_element = 0;
};

// Access to elements of arrays. GCC does not vectorise loops that copy structs.
HWY_INLINE float element(const float* x, int64_t i) { return x[i]; }
HWY_INLINE BFloat16 element(const BFloat16* x, int64_t i) { return {x[i].bits}; }
HWY_INLINE void set_element(float value, float* x, int64_t i) { x[i] = value; }
HWY_INLINE void set_element(BFloat16 value, BFloat16* x, int64_t i) { x[i].bits = value.bits; }

// A float as a stored moment, rounded with 16 random bits.
template <typename Moment>
HWY_INLINE Moment as_moment(float value, uint32_t random) {
  if constexpr (std::is_same_v<Moment, float>) {
    return value;
  } else {
    return exec::round_at_random(value, random);
  }
}

// The moments of a slice; null from the first one that is not kept.
template <typename Moment>
using Moments = std::array<Moment*, exec::kMaxMoments>;

// Each element is read once, updated with its first kMoments moments and written once.
template <bool kSummed, int kMoments, typename Update, typename Moment>
void update_by(const Update& update,
               float* HWY_RESTRICT gradients,
               float* HWY_RESTRICT parameters,
               Moment* HWY_RESTRICT first,
               Moment* HWY_RESTRICT second,
               Moment* HWY_RESTRICT third,
               const RoundingOf& rounding,
               int64_t n,
               exec::SliceChecksums& checksums) {
  const Update u = update;
  SumBits<kSummed> of_g, of_p, of_a, of_b, of_c;
  const RoundingOf r = rounding;
  const auto read = [](const auto* x, int64_t i, SumBits<kSummed>& bits) {
    const auto value = element(x, i);
    bits.add_read(value);
    return to_float(value);
  };
  const auto index = [&](int64_t i) { return r.first_element + static_cast<uint32_t>(i); };
  const auto random = [&](int64_t i) -> uint32_t {
    if constexpr (std::is_same_v<Moment, float>) return 0;
    return exec::rounding_bits(r.key, index(i));
  };
  const auto more_random = [&](int64_t i) -> uint32_t {
    if constexpr (std::is_same_v<Moment, float>) return 0;
    return exec::more_rounding_bits(r.key, index(i));
  };
  const auto write = [](float value, float* x, int64_t i, SumBits<kSummed>& bits) {
    bits.add_written(value);
    x[i] = value;
  };
  const auto write_moment = [](float value, uint32_t bits16, Moment* x, int64_t i, auto& bits) {
    const Moment stored = as_moment<Moment>(value, bits16);
    bits.add_written(stored);
    set_element(stored, x, i);
  };
  for (int64_t i = 0; i < n; ++i) {
    float g = read(gradients, i, of_g), p = read(parameters, i, of_p);
    [[maybe_unused]] float a = 0, b = 0, c = 0;
    if constexpr (kMoments > 0) a = read(first, i, of_a);
    if constexpr (kMoments > 1) b = read(second, i, of_b);
    if constexpr (kMoments > 2) c = read(third, i, of_c);
    if constexpr (kMoments == 0) u(g, p);
    if constexpr (kMoments == 1) u(g, p, a);
    if constexpr (kMoments == 2) u(g, p, a, b);
    if constexpr (kMoments == 3) u(g, p, a, b, c);
    if constexpr (exec::kWritesGradient<Update>) write(g, gradients, i, of_g);
    if constexpr (exec::kWritesParameter<Update>) write(p, parameters, i, of_p);
    if constexpr (kMoments > 0) {
      const uint32_t drawn = random(i);
      write_moment(a, drawn & 0xffffu, first, i, of_a);
      if constexpr (kMoments > 1) write_moment(b, drawn >> 16, second, i, of_b);
    }
    if constexpr (kMoments > 2) write_moment(c, more_random(i) & 0xffffu, third, i, of_c);
  }
  if constexpr (kSummed) {
    of_g.add_to(checksums.gradients, exec::kWritesGradient<Update>);
    of_p.add_to(checksums.parameters, exec::kWritesParameter<Update>);
    of_a.add_to(checksums.moments[0], true);
    of_b.add_to(checksums.moments[1], true);
    of_c.add_to(checksums.moments[2], true);
  }
}

// Updates with as many of the `kept` moments as the update takes, which are at most kMoments.
template <bool kSummed, int kMoments = exec::kMaxMoments, typename Update, typename Moment>
void update_with(const Update& update,
                 int kept,
                 float* gradients,
                 float* parameters,
                 const Moments<Moment>& moments,
                 const RoundingOf& rounding,
                 int64_t n,
                 exec::SliceChecksums& checksums) {
  if constexpr (exec::kTakesMoments<Update, kMoments>) {
    if (kMoments <= kept)
      return update_by<kSummed, kMoments>(update,
                                          gradients,
                                          parameters,
                                          moments[0],
                                          moments[1],
                                          moments[2],
                                          rounding,
                                          n,
                                          checksums);
  }
  if constexpr (kMoments > 0)
    update_with<kSummed, kMoments - 1>(
        update, kept, gradients, parameters, moments, rounding, n, checksums);
}

template <typename Moment>
void update_part(const exec::OptimizerUpdate& update,
                 const exec::OptimizerSlice& s,
                 const exec::RoundingKey& key,
                 int64_t begin,
                 int64_t n,
                 exec::SliceChecksums* checksums) {
  const int kept = s.kept_moments();
  Moments<Moment> moments = {};
  for (size_t m = 0; m < static_cast<size_t>(kept); ++m)
    moments[m] = static_cast<Moment*>(s.moments[m]) + begin;
  const RoundingOf rounding = {key, s.first_element + static_cast<uint32_t>(begin)};
  exec::SliceChecksums none;
  const auto run = [&](const auto& chosen) {
    float *const g = s.gradients + begin, *const p = s.parameters + begin;
    if (checksums == nullptr)
      return update_with<false>(chosen, kept, g, p, moments, rounding, n, none);
    update_with<true>(chosen, kept, g, p, moments, rounding, n, *checksums);
  };
#define LOCKSTEP_RUN(Config, Update) \
  if (const auto* chosen = std::get_if<Update>(&update)) return run(*chosen);
  LOCKSTEP_OPTIMIZERS(LOCKSTEP_RUN)
  LOCKSTEP_RUN(, exec::AdafactorDirection)
  LOCKSTEP_RUN(, exec::LambDirection)
  LOCKSTEP_RUN(, exec::MuonMomentum)
  LOCKSTEP_RUN(, exec::MuonStep)
  LOCKSTEP_RUN(, exec::MovingAverage)
  LOCKSTEP_RUN(, exec::Exchange)
#undef LOCKSTEP_RUN
}

// Adds the bits of a block of moments.
HWY_INLINE void add_bits(const MomentBlock& block, uint32_t& sum) {
  constexpr size_t kWords = sizeof(MomentBlock) / sizeof(uint32_t);
  uint32_t words[kWords];
  std::memcpy(words, &block, sizeof(block));
  for (size_t i = 0; i < kWords; ++i) sum += words[i];
}

HWY_INLINE void decode(bool of_squares, const MomentBlock& block, float* to) {
  if constexpr (kVectorMoments) {
    if (of_squares) return decode_block<false>(block, to);
    return decode_block<true>(block, to);
  }
  decode_moments(moment_map(of_squares), block, to);
}
HWY_INLINE void encode(bool of_squares, const float* from, MomentBlock& block) {
  if constexpr (kVectorMoments) {
    if (of_squares) return encode_block<false>(from, block);
    return encode_block<true>(from, block);
  }
  MomentCodes::of(of_squares).encode(from, block);
}

// The same for moments in blocks: each block is decoded to floats, updated and encoded again.
void update_blocks(const exec::OptimizerUpdate& update,
                   const exec::OptimizerSlice& s,
                   int64_t begin,
                   int64_t n,
                   exec::SliceChecksums* checksums) {
  const auto kept = static_cast<size_t>(s.kept_moments());
  alignas(64) float floats[exec::kMaxMoments][kMomentBlock];
  exec::OptimizerSlice part = s;
  part.moment_dtype = DType::kF32;
  for (int64_t at = begin; at < begin + n; at += kMomentBlock) {
    const auto block = [&](size_t m) -> MomentBlock& {
      return static_cast<MomentBlock*>(s.moments[m])[at / kMomentBlock];
    };
    const auto of_squares = [&](size_t m) { return (s.square_moments >> m & 1) != 0; };
    for (size_t m = 0; m < kept; ++m) {
      decode(of_squares(m), block(m), floats[m]);
      part.moments[m] = floats[m];
    }
    part.parameters = s.parameters + at;
    part.gradients = s.gradients + at;
    exec::SliceChecksums sums;
    update_part<float>(update, part, {}, 0, kMomentBlock, checksums == nullptr ? nullptr : &sums);
    if (checksums != nullptr) {
      checksums->gradients.read += sums.gradients.read;
      checksums->gradients.written += sums.gradients.written;
      checksums->parameters.read += sums.parameters.read;
      checksums->parameters.written += sums.parameters.written;
    }
    for (size_t m = 0; m < kept; ++m) {
      if (checksums != nullptr) add_bits(block(m), checksums->moments[m].read);
      encode(of_squares(m), floats[m], block(m));
      if (checksums != nullptr) add_bits(block(m), checksums->moments[m].written);
    }
  }
}

// Updates elements [begin, begin + n) of the slice and adds their bits to `checksums`, unless it is
// null.
void update_kernel(const exec::OptimizerUpdate& update,
                   const exec::OptimizerSlice& slice,
                   const exec::RoundingKey& key,
                   int64_t begin,
                   int64_t n,
                   exec::SliceChecksums* checksums) {
  if (slice.moment_dtype == DType::kF32)
    return update_part<float>(update, slice, key, begin, n, checksums);
  if (slice.moment_dtype == DType::kU8) return update_blocks(update, slice, begin, n, checksums);
  update_part<BFloat16>(update, slice, key, begin, n, checksums);
}

// Stores parameters [begin, begin + n) as bfloat16, which the ops read. A loop of its own, because
// the compiler does not vectorise updates that also round to 16 bits; the parameters are still in
// the cache.
void store_kernel(const exec::OptimizerSlice& slice, int64_t begin, int64_t n) {
  const float* const from = slice.parameters + begin;
  BFloat16* const to = static_cast<BFloat16*>(slice.stored) + begin;
  for_each_vector(static_cast<size_t>(n), [&](size_t i, auto access) HWY_ATTR {
    access.store(access.load(from + i), to + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(update_kernel);
HWY_EXPORT(store_kernel);

namespace {

// Prefetches the cache lines of n floats for writing.
void prefetch_for_writing(const float* from, int64_t n) {
  constexpr int64_t kLine = 16;  // floats
  for (int64_t i = 0; i < n; i += kLine) __builtin_prefetch(from + i, 1, 3);
}

// Adds one thread's checksums to those of all threads.
void add_atomically(const exec::SliceChecksums& mine, exec::SliceChecksums& checksums) {
  const auto add = [](uint32_t value, uint32_t& to) {
    std::atomic_ref(to).fetch_add(value, std::memory_order_relaxed);
  };
  const auto add_array = [&](const exec::ArrayChecksums& array, exec::ArrayChecksums& to) {
    add(array.read, to.read);
    add(array.written, to.written);
  };
  add_array(mine.gradients, checksums.gradients);
  add_array(mine.parameters, checksums.parameters);
  for (size_t m = 0; m < mine.moments.size(); ++m) add_array(mine.moments[m], checksums.moments[m]);
}

}  // namespace

// One of the written arrays may be memory that other ranks of the node have read: the parameters
// that they share. A store to a cache line that another core holds needs a round trip, and stores
// wait for each other. So every block but the first is prefetched for writing while the block
// before it is computed; many round trips are then in flight at once.
void optimizer_update(const exec::OptimizerUpdate& update, const exec::OptimizerSlice& slice) {
  // Floats. Without checksums: as many lines as a core can wait for at a time. With checksums:
  // enough that adding up a block's checksums costs nothing in comparison.
  const int64_t block_elements = slice.checksums == nullptr ? 256 : 1024;
  const bool writes_parameters = std::visit(
      [&](const auto& chosen) {
        using Update = std::decay_t<decltype(chosen)>;
        LOCKSTEP_CHECK(exec::fewest_moments<Update>() <= slice.kept_moments());
        return exec::kWritesParameter<Update>;
      },
      update);
  LOCKSTEP_CHECK(slice.stored == nullptr || slice.stored_dtype == DType::kBF16);
  const float* const written = writes_parameters ? slice.parameters : slice.gradients;
  const bool stores = writes_parameters && slice.stored != nullptr;
  const auto kernel = HWY_DYNAMIC_DISPATCH(update_kernel);
  const auto store = HWY_DYNAMIC_DISPATCH(store_kernel);
  const bool rounds = slice.moment_dtype == DType::kBF16,
             in_blocks = slice.moment_dtype == DType::kU8;
  const int64_t unit = in_blocks ? kMomentBlock : 1;
  LOCKSTEP_CHECK(slice.elements % unit == 0);
  const exec::RoundingKey key =
      rounds ? exec::rounding_key(*slice.rounding, slice.parameter) : exec::RoundingKey();
  if (slice.checksums != nullptr) *slice.checksums = {};
  parallel_for(slice.elements / unit, kGrainElements / unit, [&](int64_t first, int64_t last) {
    const int64_t begin = first * unit, end = last * unit;
    exec::SliceChecksums mine;
    exec::SliceChecksums* const checksums = slice.checksums == nullptr ? nullptr : &mine;
    for (int64_t block = begin; block < end; block += block_elements) {
      const int64_t next = std::min(block + block_elements, end);
      prefetch_for_writing(written + next, std::min(block_elements, end - next));
      kernel(update, slice, key, block, next - block, checksums);
      if (stores) store(slice, block, next - block);
    }
    if (checksums == nullptr) return;
    if (end - begin == slice.elements) {
      *slice.checksums = mine;
    } else {
      add_atomically(mine, *slice.checksums);
    }
  });
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
