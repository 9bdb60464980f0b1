#include "runtime/graph/ops/total_loss.h"

#include "runtime/cpu/ops/implementations.h"

namespace lockstep::cpu {
namespace {

void run(const OpCall& call) { TotalLoss::of(call).add(); }

constexpr Implementation kRows[] = {{OpKind::kTotalLoss, "scalar", run}};

}  // namespace

constinit const Implementations kCpuTotalLoss = kRows;

}  // namespace lockstep::cpu
