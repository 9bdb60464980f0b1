#include "runtime/graph/ops/leading_columns.h"

#include <algorithm>

#include "runtime/cpu/ops/implementations.h"

namespace lockstep::cpu {
namespace {

void run(const OpCall& call) {
  const auto op = LeadingColumns::of(call);
  for (int64_t row = 0; row < op.rows; ++row)
    std::copy_n(op.x + row * op.columns, op.kept, op.y + row * op.kept);
}

constexpr Implementation kRows[] = {{OpKind::kLeadingColumns, "copy", run}};

}  // namespace

constinit const Implementations kCpuLeadingColumns = kRows;

}  // namespace lockstep::cpu
