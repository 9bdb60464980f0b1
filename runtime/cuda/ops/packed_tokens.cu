#include "runtime/graph/ops/packed_tokens.h"

#include "runtime/cuda/context.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"

namespace lockstep::cuda {
namespace {

struct Part {
  graph::PackedTokens op;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    const int64_t row = i / op.time, t = i - row * op.time;
    const int64_t part = row % op.rows;
    op.parts[part][row / op.rows * op.time + t] = op.packed[i] + op.added_to(part);
  }
};

void run(const graph::OpCall& call) {
  const graph::PackedTokens op{call};
  for_each_flat<1>(op.rows * op.batch * op.time, false, Part{op}, stream_of(call));
}

constexpr exec::Implementation kRows[] = {exec::row<run>(graph::OpKind::kPackedTokens, "native")};

}  // namespace

constinit const exec::Implementations kCudaPackedTokens = kRows;

}  // namespace lockstep::cuda
