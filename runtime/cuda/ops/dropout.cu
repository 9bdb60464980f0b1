#include "runtime/graph/ops/dropout.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"

namespace lockstep::cuda {
namespace {

// N is 1 or a multiple of 4, so that a vector begins at a block of random words.
template <typename T>
struct Drop {
  const T* x;
  T* y;
  uint32_t threshold;
  float factor;
  const graph::LaneContext* lane;
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

void run(const graph::OpCall& call) {
  by_type<graph::Dropout>(call, [&]<typename T>(const auto& op) {
    const Drop<T> drop{op.x, op.y, op.threshold(), op.factor(), context_of(call).lane, op.purpose};
    for_each_flat<kVectorWidth<T>>(
        op.n, is_aligned(op.x) && is_aligned(op.y), drop, stream_of(call));
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run>(graph::OpKind::kDropout, "native"),
    exec::row<run>(graph::OpKind::kDropoutBackward, "native"),
};

}  // namespace

constinit const exec::Implementations kCudaDropout = kRows;

}  // namespace lockstep::cuda
