// Norms of heads by the kernels of norms of rows.
#include "runtime/graph/ops/qk_norm.h"

#include <algorithm>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/row_norm.h"

namespace lockstep::cpu {
namespace {

void copy_rest(const graph::QkNormRest<float>& rest) {
  if (rest.from == rest.to) return;
  const int64_t count = rest.width - rest.first;
  parallel_for(rest.tokens, grain_rows(count), [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const int64_t at = token * rest.width + rest.first;
      std::copy_n(rest.from + at, count, rest.to + at);
    }
  });
}

void run_forward(const graph::QkNormForward<float>& op) {
  row_norm_forward(op.q);
  row_norm_forward(op.k);
  copy_rest(op.rest);
}

size_t backward_workspace_bytes(const graph::QkNormBackward<float>& op) {
  return std::max(row_norm_backward_workspace_bytes(op.q), row_norm_backward_workspace_bytes(op.k));
}

void run_backward(const graph::QkNormBackward<float>& op) {
  row_norm_backward(op.q);
  row_norm_backward(op.k);
  copy_rest(op.rest);
}

constexpr exec::Implementation kRows[] = {
    row<run_forward>(graph::OpKind::kQkNorm, "simd"),
    row<run_backward, backward_workspace_bytes>(graph::OpKind::kQkNormBackward, "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuQkNorm = kRows;

}  // namespace lockstep::cpu
