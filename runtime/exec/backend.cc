#include "runtime/exec/backend.h"

#include "runtime/base/error.h"
#include "runtime/graph/schema.h"

namespace lockstep {

const Implementation& Backend::find(const Graph& graph, const Op& op) const {
  for (const Implementation& implementation : implementations()) {
    if (implementation.kind == op.kind && implementation.supports(graph, op)) return implementation;
  }
  LOCKSTEP_CHECK(false, "{} has no implementation of {} ", name(), schema_of(op.kind).name);
  __builtin_unreachable();
}

}  // namespace lockstep
