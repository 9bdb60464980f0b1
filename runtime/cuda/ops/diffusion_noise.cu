#include "runtime/graph/ops/diffusion_noise.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"

namespace lockstep::cuda {
namespace {

// Each thread draws the time of its element's sample again, which is cheaper than a separate
// kernel.
template <typename T>
struct Mix {
  graph::DiffusionNoise<T> op;
  const graph::LaneContext* lane;

  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    const int64_t sample = i / op.elements, element = i - sample * op.elements;
    op.mix(*lane, op.time_of(*lane, sample), sample, element);
    if (element == 0) op.tell(*lane, sample);
  }
};

void run(const graph::OpCall& call) {
  by_type(call.output_dtype(graph::DiffusionNoiseOut::kY), [&]<typename T>() {
    const graph::DiffusionNoise<T> op{call};
    for_each_flat<1>(
        op.samples * op.elements, false, Mix<T>{op, context_of(call).lane}, stream_of(call));
  });
}

constexpr exec::Implementation kRows[] = {exec::row<run>(graph::OpKind::kDiffusionNoise, "native")};

}  // namespace

constinit const exec::Implementations kCudaDiffusionNoise = kRows;

}  // namespace lockstep::cuda
