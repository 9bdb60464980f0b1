#include "runtime/cuda/ops/cast.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/flat_copies.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/graph/ops/cast.h"

namespace lockstep::cuda {
namespace {

template <typename T>
struct Widen {
  const T* from;
  bool accumulate;
  float* to;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    float x[Count::value], sum[Count::value] = {};
    load(from + i, x);
    if (accumulate) load(to + i, sum);
#pragma unroll
    for (int k = 0; k < Count::value; ++k) sum[k] += x[k];
    store(sum, to + i);
  }
};

void run(const graph::OpCall& call) {
  by_type(call.output_dtype(graph::CastOut::kY), [&]<typename T>() {
    copy_flat(call.input<float>(graph::CastIn::kX),
              call.output<T>(graph::CastOut::kY),
              call.input_shape(graph::CastIn::kX).elements(),
              stream_of(call));
  });
}

constexpr exec::Implementation kRows[] = {exec::row<run>(graph::OpKind::kCast, "native")};

}  // namespace

constinit const exec::Implementations kCudaCast = kRows;

template <typename T>
void widen(const T* from, bool accumulate, float* to, int64_t n, Stream stream) {
  for_each_flat<4>(n, is_aligned(from) && is_aligned(to), Widen<T>{from, accumulate, to}, stream);
}

template void widen(const float*, bool, float*, int64_t, Stream);
template void widen(const BFloat16*, bool, float*, int64_t, Stream);
template void widen(const Float16*, bool, float*, int64_t, Stream);

}  // namespace lockstep::cuda
