#include "runtime/cuda/optimizers.h"

#include "runtime/cuda/flat.h"

namespace lockstep::cuda {
namespace {

// Writes N new parameters in both forms.
template <int N, typename T>
__device__ __forceinline__ void store_parameters(const float (&p)[N], float* wide, T* stored) {
  store(p, wide);
  if (stored != nullptr) store(p, stored);
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

}  // namespace

template <typename T>
void optimizer_update(const OptimizerSlice& slice,
                      const OptimizerConstants* constants,
                      T* stored,
                      Stream stream) {
  // The alternative lies at the same place in both copies of the variant.
  const auto on_device = [&](const auto& alternative) {
    const auto offset = reinterpret_cast<const std::byte*>(&alternative) -
                        reinterpret_cast<const std::byte*>(&slice.constants);
    return reinterpret_cast<decltype(&alternative)>(reinterpret_cast<const std::byte*>(constants) +
                                                    offset);
  };
  const bool vectors = is_aligned(slice.parameters) && is_aligned(slice.gradients) &&
                       is_aligned(slice.first_moment) && is_aligned(slice.second_moment) &&
                       is_aligned(stored);
  if (const auto* sgd = std::get_if<SgdConstants>(&slice.constants)) {
    const Sgd<T> update{
        on_device(*sgd), slice.gradients, slice.parameters, slice.first_moment, stored};
    for_each_flat<4>(slice.elements, vectors, update, stream);
  } else if (const auto* average = std::get_if<MovingAverageConstants>(&slice.constants)) {
    const MovingAverage<T> update{on_device(*average), slice.gradients, slice.parameters, stored};
    for_each_flat<4>(slice.elements, vectors, update, stream);
  } else {
    const Adam<T> update{on_device(std::get<AdamConstants>(slice.constants)),
                         slice.gradients,
                         slice.parameters,
                         slice.first_moment,
                         slice.second_moment,
                         stored};
    for_each_flat<4>(slice.elements, vectors, update, stream);
  }
}

template void optimizer_update(const OptimizerSlice&, const OptimizerConstants*, float*, Stream);
template void optimizer_update(const OptimizerSlice&, const OptimizerConstants*, BFloat16*, Stream);
template void optimizer_update(const OptimizerSlice&, const OptimizerConstants*, Float16*, Stream);

}  // namespace lockstep::cuda
