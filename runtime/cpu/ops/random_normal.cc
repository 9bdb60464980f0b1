#include "runtime/graph/ops/random_normal.h"

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/implementations.h"

namespace lockstep::cpu {
namespace {

// Cost of an element, in elements of kGrainElements: some 20 ns.
constexpr int64_t kCost = 16;

void run(const graph::RandomNormal<float>& op) {
  const graph::LaneContext& lane = op.call.lane();
  parallel_for(op.n, kGrainElements / kCost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) op.draw(lane, i);
  });
}

constexpr exec::Implementation kRows[] = {row<run>(graph::OpKind::kRandomNormal, "elements")};

}  // namespace

constinit const exec::Implementations kCpuRandomNormal = kRows;

}  // namespace lockstep::cpu
