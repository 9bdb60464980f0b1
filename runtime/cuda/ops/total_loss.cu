#include "runtime/graph/ops/total_loss.h"

#include "runtime/cuda/context.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"

namespace lockstep::cuda {
namespace {

struct AddTerms {
  graph::TotalLoss op;
  template <typename Count>
  __device__ void operator()(int64_t /*i*/, Count) const {
    op.add();
  }
};

void run(const graph::OpCall& call) {
  for_each_flat<1>(1, false, AddTerms{graph::TotalLoss{call}}, stream_of(call));
}

constexpr exec::Implementation kRows[] = {exec::row<run>(graph::OpKind::kTotalLoss, "native")};

}  // namespace

constinit const exec::Implementations kCudaTotalLoss = kRows;

}  // namespace lockstep::cuda
