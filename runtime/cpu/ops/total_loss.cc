#include "runtime/graph/ops/total_loss.h"

#include "runtime/cpu/ops/implementations.h"

namespace lockstep::cpu {
namespace {

void run(const graph::OpCall& call) { graph::TotalLoss{call}.add(); }

constexpr exec::Implementation kRows[] = {row<run>(graph::OpKind::kTotalLoss, "scalar")};

}  // namespace

constinit const exec::Implementations kCpuTotalLoss = kRows;

}  // namespace lockstep::cpu
