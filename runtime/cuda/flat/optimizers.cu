#include "runtime/cuda/flat/optimizers.h"

#include "runtime/cuda/for_each.h"

// One launch for all slices: a block finds its slice in the table by bisection, which all of its
// threads read at once, and updates a part of it.

namespace lockstep::cuda {
namespace {

// The place of an alternative in OptimizerConstants.
template <typename Constants>
constexpr uint16_t kind_of = OptimizerConstants(Constants()).index();

// Writes N new parameters in both forms, which are one where T is float.
template <int N, typename T>
__device__ __forceinline__ void store_parameters(const float (&p)[N], float* wide, T* stored) {
  store(p, wide);
  if constexpr (!std::is_same_v<T, float>) {
    if (stored != nullptr) store(p, stored);
  }
}

template <typename T>
struct Sgd {
  const SgdConstants* at;  // on the device
  const float* gradients;
  float *parameters, *moments;  // moments: null without momentum
  T* stored;

  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    constexpr int N = Count::value;
    const SgdConstants constants = *at;
    float g[N], p[N], m[N] = {};
    load(gradients + i, g);
    load(parameters + i, p);
    if (moments != nullptr) {
      load(moments + i, m);
#pragma unroll
      for (int k = 0; k < N; ++k) sgd_momentum_update(constants, g[k], p[k], m[k]);
      store(m, moments + i);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) sgd_update(constants, g[k], p[k]);
    }
    store_parameters(p, parameters + i, stored == nullptr ? stored : stored + i);
  }
};

template <typename T>
struct Adam {
  const AdamConstants* at;  // on the device
  const float* gradients;
  float *parameters, *first_moments, *second_moments;
  T* stored;

  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    constexpr int N = Count::value;
    const AdamConstants constants = *at;
    float g[N], p[N], m[N], v[N];
    load(gradients + i, g);
    load(parameters + i, p);
    load(first_moments + i, m);
    load(second_moments + i, v);
#pragma unroll
    for (int k = 0; k < N; ++k) adam_update(constants, g[k], p[k], m[k], v[k]);
    store(m, first_moments + i);
    store(v, second_moments + i);
    store_parameters(p, parameters + i, stored == nullptr ? stored : stored + i);
  }
};

struct Lamb {
  const LambConstants* at;  // on the device
  const float* parameters;
  float *gradients, *first_moments, *second_moments;

  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    constexpr int N = Count::value;
    const LambConstants constants = *at;
    float g[N], p[N], m[N], v[N];
    load(gradients + i, g);
    load(parameters + i, p);
    load(first_moments + i, m);
    load(second_moments + i, v);
#pragma unroll
    for (int k = 0; k < N; ++k) lamb_direction(constants, p[k], g[k], m[k], v[k]);
    store(g, gradients + i);
    store(m, first_moments + i);
    store(v, second_moments + i);
  }
};

template <typename T>
struct MovingAverage {
  const MovingAverageConstants* at;  // on the device
  const float* sums;
  float* parameters;
  T* stored;

  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    constexpr int N = Count::value;
    const MovingAverageConstants constants = *at;
    float s[N], p[N];
    load(sums + i, s);
    load(parameters + i, p);
#pragma unroll
    for (int k = 0; k < N; ++k) moving_average_update(constants, s[k], p[k]);
    store_parameters(p, parameters + i, stored == nullptr ? stored : stored + i);
  }
};

template <typename T>
struct Exchange {
  float *others, *parameters;
  T* stored;

  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    constexpr int N = Count::value;
    float x[N], p[N];
    load(others + i, x);
    load(parameters + i, p);
#pragma unroll
    for (int k = 0; k < N; ++k) exchange_update(x[k], p[k]);
    store(x, others + i);
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

template <typename T>
__global__ void __launch_bounds__(kThreads) update_kernel(const PlacedSlice* table, int count) {
  int low = 0, high = count - 1;  // the last slice that begins at this block or before
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
  auto* const stored = static_cast<T*>(slice.stored);
  const auto run = [&](const auto& update) { update_part(begin, end, slice.vectors, update); };
  switch (slice.kind) {
    case kind_of<SgdConstants>:
      return run(Sgd<T>{static_cast<const SgdConstants*>(slice.constants),
                        slice.gradients,
                        slice.parameters,
                        slice.first_moment,
                        stored});
    case kind_of<AdamConstants>:
      return run(Adam<T>{static_cast<const AdamConstants*>(slice.constants),
                         slice.gradients,
                         slice.parameters,
                         slice.first_moment,
                         slice.second_moment,
                         stored});
    case kind_of<LambConstants>:
      return run(Lamb{static_cast<const LambConstants*>(slice.constants),
                      slice.parameters,
                      slice.gradients,
                      slice.first_moment,
                      slice.second_moment});
    case kind_of<MovingAverageConstants>:
      return run(MovingAverage<T>{static_cast<const MovingAverageConstants*>(slice.constants),
                                  slice.gradients,
                                  slice.parameters,
                                  stored});
    case kind_of<ExchangeConstants>:
      return run(Exchange<T>{slice.gradients, slice.parameters, stored});
  }
}

}  // namespace

uint32_t place_slices(std::span<const OptimizerSlice> slices,
                      std::span<const OptimizerConstants> constants,
                      const OptimizerConstants* device_constants,
                      PlacedSlice* table) {
  uint32_t blocks = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    const OptimizerSlice& slice = slices[i];
    const OptimizerConstants& group = constants[slice.group];
    // The alternative lies at the same place in both copies of the variant.
    const auto offset = std::visit(
        [&](const auto& alternative) {
          return reinterpret_cast<const std::byte*>(&alternative) -
                 reinterpret_cast<const std::byte*>(&group);
        },
        group);
    const OptimizerConstants* const on_device = device_constants + slice.group;
    table[i] = {.constants = reinterpret_cast<const std::byte*>(on_device) + offset,
                .parameters = slice.parameters,
                .gradients = slice.gradients,
                .first_moment = slice.first_moment,
                .second_moment = slice.second_moment,
                .stored = slice.stored,
                .elements = slice.elements,
                .first_block = blocks,
                .kind = static_cast<uint16_t>(group.index()),
                .vectors = is_aligned(slice.parameters) && is_aligned(slice.gradients) &&
                           is_aligned(slice.first_moment) && is_aligned(slice.second_moment) &&
                           is_aligned(slice.stored)};
    blocks += blocks_for(slice.elements, kBlockElements);
  }
  return blocks;
}

template <typename T>
void optimizer_update(const PlacedSlice* table, int count, uint32_t blocks, Stream stream) {
  if (blocks == 0) return;
  launch({{blocks, 1, 1}, {kThreads, 1, 1}, stream}, update_kernel<T>, table, count);
}

template void optimizer_update<float>(const PlacedSlice*, int, uint32_t, Stream);
template void optimizer_update<BFloat16>(const PlacedSlice*, int, uint32_t, Stream);
template void optimizer_update<Float16>(const PlacedSlice*, int, uint32_t, Stream);

}  // namespace lockstep::cuda
