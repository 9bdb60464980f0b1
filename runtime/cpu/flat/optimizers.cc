#include "runtime/cpu/flat/optimizers.h"

#include <algorithm>

#include <atomic>

#include "runtime/base/bit_checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/flat/optimizers.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
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

// Each element is read once, updated and written once.
template <bool kSummed, typename Update, typename Moment>
void update_by(const Update& update,
               float* HWY_RESTRICT gradients,
               float* HWY_RESTRICT parameters,
               Moment* HWY_RESTRICT first_moments,
               Moment* HWY_RESTRICT second_moments,
               const RoundingOf& rounding,
               int64_t n,
               exec::SliceChecksums& checksums) {
  const Update u = update;
  SumBits<kSummed> of_g, of_p, of_m, of_v;
  const RoundingOf r = rounding;
  const auto read = [](const auto* x, int64_t i, SumBits<kSummed>& bits) {
    const auto value = element(x, i);
    bits.add_read(value);
    return to_float(value);
  };
  const auto random = [&](int64_t i) -> uint32_t {
    if constexpr (std::is_same_v<Moment, float>) return 0;
    return exec::rounding_bits(r.key, r.first_element + static_cast<uint32_t>(i));
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
  const auto write_both = [&](float g, float p, int64_t i) {
    if constexpr (exec::kWritesGradient<Update>) write(g, gradients, i, of_g);
    if constexpr (exec::kWritesParameter<Update>) write(p, parameters, i, of_p);
  };
  const auto finish = [&] {
    if constexpr (!kSummed) return;
    of_g.add_to(checksums.gradients, exec::kWritesGradient<Update>);
    of_p.add_to(checksums.parameters, exec::kWritesParameter<Update>);
    of_m.add_to(checksums.first_moment, true);
    of_v.add_to(checksums.second_moment, true);
  };
  if constexpr (exec::kTakesTwoMoments<Update>) {
    for (int64_t i = 0; i < n; ++i) {
      float g = read(gradients, i, of_g), p = read(parameters, i, of_p);
      float m = read(first_moments, i, of_m), v = read(second_moments, i, of_v);
      u(g, p, m, v);
      write_both(g, p, i);
      const uint32_t drawn = random(i);
      write_moment(m, drawn & 0xffffu, first_moments, i, of_m);
      write_moment(v, drawn >> 16, second_moments, i, of_v);
    }
    return finish();
  }
  if constexpr (exec::kTakesOneMoment<Update>) {
    if (first_moments != nullptr) {
      for (int64_t i = 0; i < n; ++i) {
        float g = read(gradients, i, of_g), p = read(parameters, i, of_p);
        float m = read(first_moments, i, of_m);
        u(g, p, m);
        write_both(g, p, i);
        write_moment(m, random(i) & 0xffffu, first_moments, i, of_m);
      }
      return finish();
    }
  }
  if constexpr (exec::kTakesNoMoment<Update>) {
    for (int64_t i = 0; i < n; ++i) {
      float g = read(gradients, i, of_g), p = read(parameters, i, of_p);
      u(g, p);
      write_both(g, p, i);
    }
    finish();
  }
}

template <typename Moment>
void update_part(const exec::OptimizerUpdate& update,
                 const exec::OptimizerSlice& s,
                 const exec::RoundingKey& key,
                 int64_t begin,
                 int64_t n,
                 exec::SliceChecksums* checksums) {
  const auto at = [&](void* moments) {
    return moments == nullptr ? nullptr : static_cast<Moment*>(moments) + begin;
  };
  Moment *const first = at(s.first_moment), *const second = at(s.second_moment);
  const RoundingOf rounding = {key, s.first_element + static_cast<uint32_t>(begin)};
  exec::SliceChecksums none;
  const auto run = [&](const auto& chosen) {
    float *const g = s.gradients + begin, *const p = s.parameters + begin;
    if (checksums == nullptr)
      return update_by<false>(chosen, g, p, first, second, rounding, n, none);
    update_by<true>(chosen, g, p, first, second, rounding, n, *checksums);
  };
#define LOCKSTEP_RUN(Config, Update) \
  if (const auto* chosen = std::get_if<Update>(&update)) return run(*chosen);
  LOCKSTEP_OPTIMIZERS(LOCKSTEP_RUN)
  LOCKSTEP_RUN(, exec::LambDirection)
  LOCKSTEP_RUN(, exec::MuonMomentum)
  LOCKSTEP_RUN(, exec::MuonStep)
  LOCKSTEP_RUN(, exec::MovingAverage)
  LOCKSTEP_RUN(, exec::Exchange)
#undef LOCKSTEP_RUN
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
  for (exec::ArrayChecksums exec::SliceChecksums::*array : {&exec::SliceChecksums::gradients,
                                                            &exec::SliceChecksums::parameters,
                                                            &exec::SliceChecksums::first_moment,
                                                            &exec::SliceChecksums::second_moment}) {
    add((mine.*array).read, (checksums.*array).read);
    add((mine.*array).written, (checksums.*array).written);
  }
}

// Whether the slice has the moments that the update needs.
template <typename Update>
bool has_moments(const Update&, const exec::OptimizerSlice& slice) {
  if (exec::kTakesTwoMoments<Update>)
    return slice.first_moment != nullptr && slice.second_moment != nullptr;
  return exec::kTakesNoMoment<Update> || slice.first_moment != nullptr;
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
        LOCKSTEP_CHECK(has_moments(chosen, slice));
        return exec::kWritesParameter<Update>;
      },
      update);
  LOCKSTEP_CHECK(slice.stored == nullptr || slice.stored_dtype == DType::kBF16);
  const float* const written = writes_parameters ? slice.parameters : slice.gradients;
  const bool stores = writes_parameters && slice.stored != nullptr;
  const auto kernel = HWY_DYNAMIC_DISPATCH(update_kernel);
  const auto store = HWY_DYNAMIC_DISPATCH(store_kernel);
  const bool rounds = slice.moment_dtype != DType::kF32;
  const exec::RoundingKey key =
      rounds ? exec::rounding_key(*slice.rounding, slice.parameter) : exec::RoundingKey();
  if (slice.checksums != nullptr) *slice.checksums = {};
  parallel_for(slice.elements, kGrainElements, [&](int64_t begin, int64_t end) {
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
