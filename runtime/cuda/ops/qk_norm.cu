// Norms of heads by the kernels of RMS norms, and a copy of what lies behind them.
#include "runtime/graph/ops/qk_norm.h"

#include <algorithm>

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/rms_norm.h"
#include "runtime/cuda/pixel_kernel.h"
#include "runtime/cuda/row_parts.h"

namespace lockstep::cuda {
namespace {

template <typename T>
struct Copy {
  QkNormRest<T> rest;
  template <typename Count>
  __device__ void operator()(int64_t token, int64_t column, Count) const {
    float values[Count::value];
    const int64_t at = token * rest.width + rest.first + column;
    load(rest.from + at, values);
    store(values, rest.to + at);
  }
};

template <typename T>
void copy_rest(const QkNormRest<T>& rest, Stream stream) {
  if (rest.from == rest.to) return;
  const int64_t count = rest.width - rest.first;
  const bool vectors = is_vectorizable<T>(count, {rest.from, rest.to}) &&
                       rest.width % kVectorWidth<T> == 0 && rest.first % kVectorWidth<T> == 0;
  for_each_pixel<kVectorWidth<T>>(rest.tokens, count, vectors, Copy<T>{rest}, stream);
}

// Whether a head is a row that the norms take.
bool supports(const OpCall& op) {
  const size_t gamma = op.kind() == OpKind::kQkNorm ? 1 : 2;
  return op.input_shape(gamma).elements() <= kMostOddColumns;
}

void run_forward(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    const auto op = QkNormForward<T>::of(call);
    rms_norm_forward(op.q, stream_of(call));
    rms_norm_forward(op.k, stream_of(call));
    copy_rest(op.rest, stream_of(call));
  });
}

size_t backward_workspace_bytes(const OpCall& call) {
  const auto op = QkNormBackward<float>::of(call);
  return std::max(rms_norm_backward_workspace_bytes(op.q.rows, op.q.columns),
                  rms_norm_backward_workspace_bytes(op.k.rows, op.k.columns));
}

void run_backward(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    const auto op = QkNormBackward<T>::of(call);
    rms_norm_backward(op.q, stream_of(call));
    rms_norm_backward(op.k, stream_of(call));
    copy_rest(op.rest, stream_of(call));
  });
}

constexpr Implementation kRows[] = {
    {.kind = OpKind::kQkNorm, .name = "own", .run = run_forward, .supports = supports},
    {OpKind::kQkNormBackward, "own", run_backward, backward_workspace_bytes, supports},
};

}  // namespace

constinit const Implementations kCudaQkNorm = kRows;

}  // namespace lockstep::cuda
