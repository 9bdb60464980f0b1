#include "runtime/graph/ops/target_part.h"

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/words.h"

namespace lockstep::cpu {
namespace {

void run(const graph::OpCall& call) {
  const graph::TargetPart op{call};
  for (int64_t row = 0; row < op.rows; ++row)
    copy_words(op.record + row * op.width + op.first, op.columns, op.part + row * op.columns);
}

constexpr exec::Implementation kRows[] = {row<run>(graph::OpKind::kTargetPart, "rows")};

}  // namespace

constinit const exec::Implementations kCpuTargetPart = kRows;

}  // namespace lockstep::cpu
