// Norms of heads by the kernels of norms of rows, and a copy of the columns after them.
#include "runtime/graph/ops/qk_norm.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/row_norm.h"
#include "runtime/cuda/pixel_kernel.h"
#include "runtime/cuda/plan/norms.h"

namespace lockstep::cuda {
namespace {

template <typename T>
struct Copy {
  graph::QkNormRest<T> rest;
  template <typename Count>
  __device__ void operator()(int64_t token, int64_t column, Count) const {
    float values[Count::value];
    const int64_t at = token * rest.width + rest.first + column;
    load(rest.from + at, values);
    store(values, rest.to + at);
  }
};

template <typename T>
void copy_rest(const graph::QkNormRest<T>& rest, Stream stream) {
  if (rest.from == rest.to) return;
  const int64_t count = rest.width - rest.first;
  const bool vectors = is_vectorizable<T>(count, {rest.from, rest.to}) &&
                       rest.width % kVectorWidth<T> == 0 && rest.first % kVectorWidth<T> == 0;
  for_each_pixel<kVectorWidth<T>>(rest.tokens, count, vectors, Copy<T>{rest}, stream);
}

void run_forward(const graph::OpCall& call) {
  by_type<graph::QkNormForward>(call, [&]<typename T>(const auto& op) {
    row_norm_forward(op.q, stream_of(call));
    row_norm_forward(op.k, stream_of(call));
    copy_rest(op.rest, stream_of(call));
  });
}

void run_backward(const graph::OpCall& call) {
  by_type<graph::QkNormBackward>(call, [&]<typename T>(const auto& op) {
    head_norm_backward(op.q, context_of(call));
    head_norm_backward(op.k, context_of(call));
    copy_rest(op.rest, stream_of(call));
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward, exec::no_workspace, qk_norm_supports>(graph::OpKind::kQkNorm, "native"),
    exec::row<run_backward, qk_norm_backward_workspace, qk_norm_supports>(
        graph::OpKind::kQkNormBackward, "native"),
};

}  // namespace

constinit const exec::Implementations kCudaQkNorm = kRows;

}  // namespace lockstep::cuda
