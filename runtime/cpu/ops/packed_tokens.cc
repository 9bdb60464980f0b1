#include "runtime/graph/ops/packed_tokens.h"

#include <algorithm>

#include "runtime/cpu/ops/implementations.h"

namespace lockstep::cpu {
namespace {

void run(const graph::PackedTokens& op) {
  for (int64_t row = 0; row < op.rows * op.batch; ++row) {
    const int32_t* const from = op.packed + row * op.time;
    const int64_t part = row % op.rows;
    std::transform(from,
                   from + op.time,
                   op.parts[part] + row / op.rows * op.time,
                   [added = op.added_to(part)](int32_t x) { return x + added; });
  }
}

constexpr exec::Implementation kRows[] = {row<run>(graph::OpKind::kPackedTokens, "rows")};

}  // namespace

constinit const exec::Implementations kCpuPackedTokens = kRows;

}  // namespace lockstep::cpu
