#include "runtime/graph/ops/add.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"

namespace lockstep::cuda {
namespace {

template <typename T>
struct Sums {
  const T *a, *b;
  T* out;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    constexpr int N = Count::value;
    float x[N], y[N];
    load(a + i, x);
    load(b + i, y);
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] += y[k];
    store(x, out + i);
  }
};

void run(const graph::OpCall& call) {
  by_type<graph::Add>(call, [&]<typename T>(const auto& op) {
    const bool vectors = is_aligned(op.a) && is_aligned(op.b) && is_aligned(op.y);
    for_each_flat<kVectorWidth<T>>(op.n, vectors, Sums<T>{op.a, op.b, op.y}, stream_of(call));
  });
}

constexpr exec::Implementation kRows[] = {exec::row<run>(graph::OpKind::kAdd, "native")};

}  // namespace

constinit const exec::Implementations kCudaAdd = kRows;

}  // namespace lockstep::cuda
