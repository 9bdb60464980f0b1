#include "runtime/exec/op_set.h"

#include "runtime/base/error.h"
#include "runtime/graph/schema.h"

namespace lockstep {

const Implementation* OpSet::first(const Graph& graph, const Op& op) const {
  for (const Implementation& implementation : implementations) {
    if (implementation.kind == op.kind && implementation.supports(graph, op))
      return &implementation;
  }
  return nullptr;
}

bool OpSet::supports(const Graph& graph, const Op& op) const { return first(graph, op) != nullptr; }

const Implementation& OpSet::find(const Graph& graph, const Op& op) const {
  const Implementation* implementation = first(graph, op);
  LOCKSTEP_CHECK(implementation != nullptr,
                 "{} has no implementation of {} ({}) ",
                 device,
                 schema_of(op.kind).name,
                 op.name);
  return *implementation;
}

}  // namespace lockstep
