#include "runtime/cuda/flat/optimizers.h"

#include <algorithm>

#include "runtime/cuda/for_each.h"

// One launch for all slices. A block finds its slice in the table by binary search (all threads
// read the same entries) and updates a part of it.

namespace lockstep::cuda {
namespace {

// Writes N new parameters both as floats and as T; if T is float, only once.
template <int N, typename T>
__device__ __forceinline__ void store_parameters(const float (&p)[N], float* wide, T* stored) {
  store(p, wide);
  if constexpr (!std::is_same_v<T, float>) {
    if (stored != nullptr) store(p, stored);
  }
}

// Stores N consecutive moments. For bfloat16, each is rounded with the 16 bits of `random` that
// begin at bit `shift`.
template <int N>
__device__ __forceinline__ void store_moments(const float (&m)[N],
                                              const uint32_t (&)[N],
                                              int /*shift*/,
                                              float* to) {
  store(m, to);
}
template <int N>
__device__ __forceinline__ void store_moments(const float (&m)[N],
                                              const uint32_t (&random)[N],
                                              int shift,
                                              BFloat16* to) {
  Vector<BFloat16, N> vector;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const uint32_t drawn = random[k];
    vector.at[k] = exec::round_at_random(m[k], drawn >> shift & 0xffffu);
  }
  store_vector(vector, to);
}

// Calls update() for each of N elements, with their first kMoments moments.
template <int kMoments, int N, typename Update>
__device__ __forceinline__ void update_all(const Update& update,
                                           float (&g)[N],
                                           float (&p)[N],
                                           float (&m)[exec::kMaxMoments][N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if constexpr (kMoments == 0) update(g[k], p[k]);
    if constexpr (kMoments == 1) update(g[k], p[k], m[0][k]);
    if constexpr (kMoments == 2) update(g[k], p[k], m[0][k], m[1][k]);
    if constexpr (kMoments == 3) update(g[k], p[k], m[0][k], m[1][k], m[2][k]);
  }
}

// Updates elements of a slice. T: the type of the stored parameters.
template <typename Update, typename T, typename Moment>
struct Elements {
  const Update* at;  // in device memory
  float *gradients, *parameters;
  Moment *first, *second, *third;  // moments; null from the first one that is not kept
  T* stored;
  exec::RoundingKey key;  // for moments that are rounded
  uint32_t first_element;
  const GateState* gate;  // null: the scale is that of the constants

  __device__ Update constants() const {
    Update update = *at;
    if constexpr (requires { update.grad_scale; }) {
      if (gate != nullptr) update.grad_scale = gate->gradient_scale;
    }
    return update;
  }

  // Calls f(the number of moments) for as many as are kept and the update takes, which are at most
  // kMoments.
  template <int kMoments = exec::kMaxMoments, typename F>
  __device__ __forceinline__ void with_moments(const F& f) const {
    if constexpr (exec::kTakesMoments<Update, kMoments>) {
      const bool kept = kMoments == 0 || (kMoments == 1 && first != nullptr) ||
                        (kMoments == 2 && second != nullptr) || (kMoments == 3 && third != nullptr);
      if (kept || kMoments == exec::fewest_moments<Update>())
        return f(std::integral_constant<int, kMoments>());
    }
    if constexpr (kMoments > 0) with_moments<kMoments - 1>(f);
  }

  template <int N>
  __device__ __forceinline__ void load_weights(int64_t i, float (&g)[N], float (&p)[N]) const {
    load(gradients + i, g);
    load(parameters + i, p);
  }
  template <int N>
  __device__ __forceinline__ void store_weights(int64_t i,
                                                const float (&g)[N],
                                                const float (&p)[N]) const {
    if constexpr (exec::kWritesGradient<Update>) store(g, gradients + i);
    if constexpr (exec::kWritesParameter<Update>)
      store_parameters(p, parameters + i, stored == nullptr ? stored : stored + i);
  }
};

// N elements at a time, with moments of floats or bfloat16.
template <typename Update, typename T, typename Moment>
struct PlainElements : Elements<Update, T, Moment> {
  template <typename Bits, int N>
  __device__ __forceinline__ void draw(Bits bits, int64_t i, uint32_t (&random)[N]) const {
    if constexpr (!std::is_same_v<Moment, float>) {
#pragma unroll
      for (int k = 0; k < N; ++k)
        random[k] = bits(this->key, this->first_element + static_cast<uint32_t>(i) + k);
    }
  }

  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    constexpr int N = Count::value;
    const Update update = this->constants();
    float g[N], p[N];
    this->load_weights(i, g, p);
    this->with_moments([&](auto count) {
      constexpr int kMoments = decltype(count)::value;
      float m[exec::kMaxMoments][N] = {};
      if constexpr (kMoments > 0) load(this->first + i, m[0]);
      if constexpr (kMoments > 1) load(this->second + i, m[1]);
      if constexpr (kMoments > 2) load(this->third + i, m[2]);
      update_all<kMoments>(update, g, p, m);
      uint32_t random[N] = {};
      if constexpr (kMoments > 0) {
        draw(exec::rounding_bits, i, random);
        store_moments(m[0], random, 0, this->first + i);
      }
      if constexpr (kMoments > 1) store_moments(m[1], random, 16, this->second + i);
      if constexpr (kMoments > 2) {
        draw(exec::more_rounding_bits, i, random);
        store_moments(m[2], random, 0, this->third + i);
      }
    });
    this->store_weights(i, g, p);
  }
};

__device__ const MomentMap kMaps[2] = {kSignedMoments, kUnsignedMoments};

// A warp updates a block of moments: each lane two groups of four elements, of which the block
// holds the codes in two words.
template <typename Update, typename T>
struct BlockElements : Elements<Update, T, MomentBlock> {
  static constexpr int kGroup = 4, kGroups = kMomentBlock / (kWarp * kGroup);

  __device__ __forceinline__ static int word_of(int group) {
    return group * kWarp + static_cast<int>(threadIdx.x) % kWarp;
  }
  // (group, moment, element)
  using Moments = float[kGroups][exec::kMaxMoments][kGroup];

  __device__ __forceinline__ static void decode(const MomentMap& map,
                                                const MomentBlock& block,
                                                int moment,
                                                Moments& to) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const uint32_t word = reinterpret_cast<const uint32_t*>(block.codes)[word_of(group)];
#pragma unroll
      for (int k = 0; k < kGroup; ++k)
        to[group][moment][k] = moment_value(map, word >> (8 * k) & 0xffu, block.scale);
    }
  }

  __device__ __forceinline__ static void encode(const MomentMap& map,
                                                const Moments& from,
                                                int moment,
                                                MomentBlock& block) {
    float scale = 0;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int k = 0; k < kGroup; ++k) scale = fmaxf(scale, fabsf(from[group][moment][k]));
    }
    scale = warp_reduce<Max>(scale);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      uint32_t word = 0;
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        const uint32_t code = moment_code(map, scaled_moment(from[group][moment][k], scale));
        word |= code << (8 * k);
      }
      reinterpret_cast<uint32_t*>(block.codes)[word_of(group)] = word;
    }
    if (threadIdx.x % kWarp == 0) block.scale = scale;
  }

  // Calls f(element, N) for the group's elements: at once, or one by one.
  template <typename F>
  __device__ __forceinline__ static void for_group(int64_t first, bool vectors, const F& f) {
    if (vectors) return f(first, 0, std::integral_constant<int, kGroup>());
#pragma unroll
    for (int k = 0; k < kGroup; ++k) f(first + k, k, std::integral_constant<int, 1>());
  }
  template <int N>
  __device__ __forceinline__ static float (&part(float (&group)[kGroup], int at))[N] {
    return *reinterpret_cast<float(*)[N]>(group + at);
  }

  // Updates the block that begins at element i. All lanes of a warp call it together.
  __device__ void operator()(int64_t i, bool vectors, uint32_t square_moments) const {
    const Update update = this->constants();
    this->with_moments([&](auto count) {
      constexpr int kMoments = decltype(count)::value;
      MomentBlock* const blocks[exec::kMaxMoments] = {this->first, this->second, this->third};
      const int64_t block = i / kMomentBlock;
      Moments m = {};
#pragma unroll
      for (int moment = 0; moment < kMoments; ++moment)
        decode(kMaps[square_moments >> moment & 1u], blocks[moment][block], moment, m);
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const int64_t element = i + int64_t{kGroup} * word_of(group);
        float g[kGroup], p[kGroup];
        for_group(element, vectors, [&](int64_t e, int at, auto n) {
          constexpr int N = decltype(n)::value;
          this->load_weights(e, part<N>(g, at), part<N>(p, at));
        });
        update_all<kMoments>(update, g, p, m[group]);
        for_group(element, vectors, [&](int64_t e, int at, auto n) {
          constexpr int N = decltype(n)::value;
          this->store_weights(e, part<N>(g, at), part<N>(p, at));
        });
      }
#pragma unroll
      for (int moment = 0; moment < kMoments; ++moment)
        encode(kMaps[square_moments >> moment & 1u], m, moment, blocks[moment][block]);
    });
  }
};

constexpr int kThreads = 256;
constexpr int kWidth = 4;  // elements that a thread updates at once
constexpr int64_t kBlockElements = 2 * kThreads * kWidth;

template <typename Update>
__device__ __forceinline__ void update_part(int64_t begin,
                                            int64_t end,
                                            bool vectors,
                                            const Update& update) {
  for (int64_t i = begin + static_cast<int64_t>(threadIdx.x) * kWidth; i < end;
       i += int64_t{kThreads} * kWidth) {
    if (vectors && i + kWidth <= end) {
      update(i, std::integral_constant<int, kWidth>());
    } else {
      for (int64_t k = i; k < end && k < i + kWidth; ++k)
        update(k, std::integral_constant<int, 1>());
    }
  }
}

// Tells the compiler that an array, whose address it does not know, is in global memory.
template <typename T>
__device__ __forceinline__ T* global(T* array) {
#ifdef __CUDA_ARCH__
  __builtin_assume(__isGlobal(array));
#endif
  return array;
}

// Runs the slice's update, which is alternative kKind or a later one.
template <typename T, typename Moment, size_t kKind = 0>
__device__ __forceinline__ void update_slice(const PlacedSlice& slice,
                                             const exec::RoundingKey& key,
                                             const GateState* gate,
                                             int64_t begin,
                                             int64_t end) {
  if constexpr (kKind < std::variant_size_v<exec::OptimizerUpdate>) {
    if (slice.kind != kKind)
      return update_slice<T, Moment, kKind + 1>(slice, key, gate, begin, end);
    using Update = std::variant_alternative_t<kKind, exec::OptimizerUpdate>;
    const Elements<Update, T, Moment> elements = {global(static_cast<const Update*>(slice.update)),
                                                  global(slice.gradients),
                                                  global(slice.parameters),
                                                  global(static_cast<Moment*>(slice.moments[0])),
                                                  global(static_cast<Moment*>(slice.moments[1])),
                                                  global(static_cast<Moment*>(slice.moments[2])),
                                                  global(static_cast<T*>(slice.stored)),
                                                  key,
                                                  slice.first_element,
                                                  gate};
    if constexpr (std::is_same_v<Moment, MomentBlock>) {
      const BlockElements<Update, T> blocks = {elements};
      const int64_t warp = threadIdx.x / kWarp;
      for (int64_t i = begin + warp * kMomentBlock; i < end;
           i += int64_t{kThreads / kWarp} * kMomentBlock)
        blocks(i, slice.vectors, slice.square_moments);
    } else {
      update_part(begin, end, slice.vectors, PlainElements<Update, T, Moment>{elements});
    }
  }
}

template <typename T, typename Moment>
__global__ void __launch_bounds__(kThreads) update_kernel(const PlacedSlice* table,
                                                          int count,
                                                          const GateState* gate,
                                                          const exec::MomentRounding* rounding) {
  if (gate != nullptr && gate->open == 0) return;
  int low = 0, high = count - 1;  // finds the last slice that begins at or before this block
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table[middle].first_block <= blockIdx.x) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const PlacedSlice slice = table[low];
  const int64_t begin = (blockIdx.x - slice.first_block) * kBlockElements;
  const int64_t end =
      begin + kBlockElements < slice.elements ? begin + kBlockElements : slice.elements;
  exec::RoundingKey key;
  if constexpr (std::is_same_v<Moment, BFloat16>)
    key = exec::rounding_key(*rounding, slice.parameter);
  update_slice<T, Moment>(slice, key, gate, begin, end);
}

}  // namespace

uint32_t place_slices(std::span<const exec::OptimizerSlice> slices,
                      std::span<const exec::OptimizerUpdate> updates,
                      const exec::OptimizerUpdate* device_updates,
                      PlacedSlice* table) {
  uint32_t blocks = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    const exec::OptimizerSlice& slice = slices[i];
    const exec::OptimizerUpdate& group = updates[slice.group];
    // The alternative has the same offset in both copies of the variant.
    const auto offset = std::visit(
        [&](const auto& alternative) {
          return reinterpret_cast<const std::byte*>(&alternative) -
                 reinterpret_cast<const std::byte*>(&group);
        },
        group);
    const exec::OptimizerUpdate* const on_device = device_updates + slice.group;
    table[i] = {.update = reinterpret_cast<const std::byte*>(on_device) + offset,
                .parameters = slice.parameters,
                .gradients = slice.gradients,
                .moments = {slice.moments[0], slice.moments[1], slice.moments[2]},
                .stored = slice.stored,
                .elements = slice.elements,
                .parameter = slice.parameter,
                .first_element = slice.first_element,
                .first_block = blocks,
                .kind = static_cast<uint16_t>(group.index()),
                .square_moments = slice.square_moments,
                .vectors = is_aligned(slice.parameters) && is_aligned(slice.gradients) &&
                           (slice.moment_dtype == DType::kU8 ||
                            std::ranges::all_of(slice.moments, is_aligned)) &&
                           is_aligned(slice.stored)};
    blocks += blocks_for(slice.elements, kBlockElements);
  }
  return blocks;
}

template <typename T, typename Moment>
void optimizer_update(const PlacedSlice* table,
                      int count,
                      uint32_t blocks,
                      const GateState* gate,
                      Stream stream,
                      const exec::MomentRounding* rounding) {
  if (blocks == 0) return;
  launch({blocks, kThreads, stream}, update_kernel<T, Moment>, table, count, gate, rounding);
}

#define LOCKSTEP_INSTANTIATE(T, Moment)      \
  template void optimizer_update<T, Moment>( \
      const PlacedSlice*, int, uint32_t, const GateState*, Stream, const exec::MomentRounding*);
#define LOCKSTEP_INSTANTIATE_ALL(T) \
  LOCKSTEP_INSTANTIATE(T, float)    \
  LOCKSTEP_INSTANTIATE(T, BFloat16) \
  LOCKSTEP_INSTANTIATE(T, MomentBlock)
LOCKSTEP_INSTANTIATE_ALL(float)
LOCKSTEP_INSTANTIATE_ALL(BFloat16)
LOCKSTEP_INSTANTIATE_ALL(Float16)
#undef LOCKSTEP_INSTANTIATE_ALL
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::cuda
