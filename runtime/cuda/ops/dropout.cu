#include "runtime/cuda/ops/dropout.h"

#include "runtime/cuda/for_each.h"

namespace lockstep::cuda {
namespace {

// N is 1 or a multiple of 4: then a vector begins with a block of random words.
template <typename T>
struct Dropout {
  const T* x;
  T* y;
  uint32_t threshold;
  float factor;
  const LaneContext* lane;
  uint32_t purpose;

  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    constexpr int N = Count::value;
    const RngStream random{lane->seed, lane->step, lane->lane, purpose};
    float values[N];
    load(x + i, values);
    if constexpr (N == 1) {
      values[0] =
          philox_word(random, static_cast<uint64_t>(i)) >= threshold ? values[0] * factor : 0;
    } else {
#pragma unroll
      for (int block = 0; block < N / 4; ++block) {
        const Philox4 words = philox(random, static_cast<uint64_t>(i / 4 + block));
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          float& value = values[block * 4 + k];
          value = words.word[k] >= threshold ? value * factor : 0;
        }
      }
    }
    store(values, y + i);
  }
};

}  // namespace

template <typename T>
void dropout(const T* x,
             T* y,
             int64_t n,
             float p,
             const LaneContext* lane,
             uint32_t purpose,
             Stream stream) {
  const auto threshold = static_cast<uint32_t>(static_cast<double>(p) * 0x1p32);
  const Dropout<T> drop{x, y, threshold, 1 / (1 - p), lane, purpose};
  for_each_flat<kVectorWidth<T>>(n, is_aligned(x) && is_aligned(y), drop, stream);
}

template void dropout(const float*, float*, int64_t, float, const LaneContext*, uint32_t, Stream);
template void dropout(
    const BFloat16*, BFloat16*, int64_t, float, const LaneContext*, uint32_t, Stream);
template void dropout(
    const Float16*, Float16*, int64_t, float, const LaneContext*, uint32_t, Stream);

}  // namespace lockstep::cuda
