#include "runtime/graph/ops/random_normal.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"

namespace lockstep::cuda {
namespace {

template <typename T>
struct Draw {
  graph::RandomNormal<T> op;
  const graph::LaneContext* lane;

  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    op.draw(*lane, i);
  }
};

void run(const graph::OpCall& call) {
  by_type(call.output_dtype(graph::RandomNormalOut::kY), [&]<typename T>() {
    const graph::RandomNormal<T> op{call};
    for_each_flat<1>(op.n, false, Draw<T>{op, context_of(call).lane}, stream_of(call));
  });
}

constexpr exec::Implementation kRows[] = {exec::row<run>(graph::OpKind::kRandomNormal, "native")};

}  // namespace

constinit const exec::Implementations kCudaRandomNormal = kRows;

}  // namespace lockstep::cuda
