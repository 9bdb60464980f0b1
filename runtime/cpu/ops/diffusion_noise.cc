#include "runtime/graph/ops/diffusion_noise.h"

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/implementations.h"

namespace lockstep::cpu {
namespace {

// Cost of an element, in elements of kGrainElements: some 20 ns.
constexpr int64_t kCost = 16;

void run(const graph::DiffusionNoise<float>& op) {
  const graph::LaneContext& lane = op.call.lane();
  parallel_for(op.samples, grain_rows(op.elements * kCost), [&](int64_t begin, int64_t end) {
    for (int64_t sample = begin; sample < end; ++sample) {
      op.tell(lane, sample);
      const auto time = op.time_of(lane, sample);
      for (int64_t i = 0; i < op.elements; ++i) op.mix(lane, time, sample, i);
    }
  });
}

constexpr exec::Implementation kRows[] = {row<run>(graph::OpKind::kDiffusionNoise, "rows")};

}  // namespace

constinit const exec::Implementations kCpuDiffusionNoise = kRows;

}  // namespace lockstep::cpu
