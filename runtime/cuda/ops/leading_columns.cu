#include "runtime/graph/ops/leading_columns.h"

#include "runtime/cuda/context.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"

namespace lockstep::cuda {
namespace {

struct Kept {
  LeadingColumns op;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    const int64_t row = i / op.kept;
    op.y[i] = op.x[row * op.columns + i - row * op.kept];
  }
};

void run(const OpCall& call) {
  const auto op = LeadingColumns::of(call);
  for_each_flat<1>(op.rows * op.kept, false, Kept{op}, stream_of(call));
}

constexpr Implementation kRows[] = {{OpKind::kLeadingColumns, "native", run}};

}  // namespace

constinit const Implementations kCudaLeadingColumns = kRows;

}  // namespace lockstep::cuda
