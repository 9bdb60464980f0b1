#include "runtime/graph/ops/target_part.h"

#include "runtime/cuda/context.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"

namespace lockstep::cuda {
namespace {

struct CopyColumns {
  graph::TargetPart op;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    const int64_t row = i / op.columns, column = i - row * op.columns;
    op.part[i] = op.record[row * op.width + op.first + column];
  }
};

void run(const graph::OpCall& call) {
  const graph::TargetPart op{call};
  for_each_flat<1>(op.rows * op.columns, false, CopyColumns{op}, stream_of(call));
}

constexpr exec::Implementation kRows[] = {exec::row<run>(graph::OpKind::kTargetPart, "native")};

}  // namespace

constinit const exec::Implementations kCudaTargetPart = kRows;

}  // namespace lockstep::cuda
