#include "runtime/graph/ops/packed_tokens.h"

#include <algorithm>

#include "runtime/cpu/ops/implementations.h"

namespace lockstep::cpu {
namespace {

void run(const OpCall& call) {
  const auto op = PackedTokens::of(call);
  for (int64_t row = 0; row < 3 * op.batch; ++row)
    std::copy_n(op.packed + row * op.time, op.time, op.parts[row % 3] + row / 3 * op.time);
}

constexpr Implementation kRows[] = {{OpKind::kPackedTokens, "copy", run}};

}  // namespace

constinit const Implementations kCpuPackedTokens = kRows;

}  // namespace lockstep::cpu
