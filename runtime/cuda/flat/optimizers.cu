#include "runtime/cuda/flat/optimizers.h"

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
  for (int k = 0; k < N; ++k)
    vector.at[k] = exec::round_at_random(m[k], random[k] >> shift & 0xffffu);
  store_vector(vector, to);
}

// Updates N elements at a time. T: the type of the stored parameters.
template <typename Update, typename T, typename Moment>
struct Elements {
  const Update* at;  // in device memory
  float *gradients, *parameters;
  Moment *first_moments, *second_moments;
  T* stored;
  exec::RoundingKey key;  // for moments that are rounded
  uint32_t first_element;
  const GateState* gate;  // null: the scale is that of the constants

  template <int N>
  __device__ __forceinline__ void draw(int64_t i, uint32_t (&random)[N]) const {
    if constexpr (!std::is_same_v<Moment, float>) {
#pragma unroll
      for (int k = 0; k < N; ++k)
        random[k] = exec::rounding_bits(key, first_element + static_cast<uint32_t>(i) + k);
    }
  }

  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    constexpr int N = Count::value;
    Update update = *at;
    if constexpr (requires { update.grad_scale; }) {
      if (gate != nullptr) update.grad_scale = gate->gradient_scale;
    }
    float g[N], p[N], m[N] = {}, v[N] = {};
    uint32_t random[N] = {};
    load(gradients + i, g);
    load(parameters + i, p);
    if constexpr (exec::kTakesTwoMoments<Update>) {
      load(first_moments + i, m);
      load(second_moments + i, v);
#pragma unroll
      for (int k = 0; k < N; ++k) update(g[k], p[k], m[k], v[k]);
      draw(i, random);
      store_moments(m, random, 0, first_moments + i);
      store_moments(v, random, 16, second_moments + i);
    } else if (exec::kTakesOneMoment<Update> && first_moments != nullptr) {
      if constexpr (exec::kTakesOneMoment<Update>) {
        load(first_moments + i, m);
#pragma unroll
        for (int k = 0; k < N; ++k) update(g[k], p[k], m[k]);
        draw(i, random);
        store_moments(m, random, 0, first_moments + i);
      }
    } else if constexpr (exec::kTakesNoMoment<Update>) {
#pragma unroll
      for (int k = 0; k < N; ++k) update(g[k], p[k]);
    }
    if constexpr (exec::kWritesGradient<Update>) store(g, gradients + i);
    if constexpr (exec::kWritesParameter<Update>)
      store_parameters(p, parameters + i, stored == nullptr ? stored : stored + i);
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
                                                  global(static_cast<Moment*>(slice.first_moment)),
                                                  global(static_cast<Moment*>(slice.second_moment)),
                                                  global(static_cast<T*>(slice.stored)),
                                                  key,
                                                  slice.first_element,
                                                  gate};
    update_part(begin, end, slice.vectors, elements);
  }
}

template <typename T, typename Moment>
__global__ void __launch_bounds__(kThreads)
    update_kernel(const PlacedSlice* table, int count, const GateState* gate) {
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
  if constexpr (!std::is_same_v<Moment, float>)
    key = exec::rounding_key(*slice.rounding, slice.parameter);
  update_slice<T, Moment>(slice, key, gate, begin, end);
}

}  // namespace

uint32_t place_slices(std::span<const exec::OptimizerSlice> slices,
                      std::span<const exec::OptimizerUpdate> updates,
                      const exec::OptimizerUpdate* device_updates,
                      PlacedSlice* table,
                      const exec::MomentRounding* device_rounding) {
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
                .first_moment = slice.first_moment,
                .second_moment = slice.second_moment,
                .stored = slice.stored,
                .rounding = device_rounding,
                .elements = slice.elements,
                .parameter = slice.parameter,
                .first_element = slice.first_element,
                .first_block = blocks,
                .kind = static_cast<uint16_t>(group.index()),
                .vectors = is_aligned(slice.parameters) && is_aligned(slice.gradients) &&
                           is_aligned(slice.first_moment) && is_aligned(slice.second_moment) &&
                           is_aligned(slice.stored)};
    blocks += blocks_for(slice.elements, kBlockElements);
  }
  return blocks;
}

template <typename T, typename Moment>
void optimizer_update(
    const PlacedSlice* table, int count, uint32_t blocks, const GateState* gate, Stream stream) {
  if (blocks == 0) return;
  launch({blocks, kThreads, stream}, update_kernel<T, Moment>, table, count, gate);
}

#define LOCKSTEP_INSTANTIATE(T)                                     \
  template void optimizer_update<T, float>(                         \
      const PlacedSlice*, int, uint32_t, const GateState*, Stream); \
  template void optimizer_update<T, BFloat16>(                      \
      const PlacedSlice*, int, uint32_t, const GateState*, Stream);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(BFloat16)
LOCKSTEP_INSTANTIATE(Float16)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::cuda
