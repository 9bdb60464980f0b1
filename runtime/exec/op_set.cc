#include "runtime/exec/op_set.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/graph/graph.h"

namespace lockstep::exec {
namespace {

// Ops that belong to no backend.
constexpr Implementation kOfTheExecutor[] = {{graph::OpKind::kGatherLanes, "executor", nullptr}};

// Calls f(implementation) for each one of the kind, in order, until f returns true. Returns whether
// it did.
template <typename F>
bool any_of_kind(const OpSet& ops, graph::OpKind kind, F f) {
  const auto any = [&](Implementations rows) {
    return std::any_of(rows.begin(), rows.end(), [&](const Implementation& row) {
      return row.kind == kind && f(row);
    });
  };
  return any(kOfTheExecutor) ||
         std::any_of(ops.implementations.begin(), ops.implementations.end(), any);
}

}  // namespace

bool OpSet::computes_in(DType type) const { return std::ranges::find(types, type) != types.end(); }

bool OpSet::has(graph::OpKind kind) const {
  return any_of_kind(*this, kind, [](const Implementation&) { return true; });
}

bool OpSet::supports(const graph::Graph& graph, const graph::Op& op) const {
  const graph::OpCall call(graph, op);
  return any_of_kind(*this, op.kind, [&](const Implementation& row) { return row.supports(call); });
}

size_t OpSet::op_workspace_bytes(const graph::Graph& graph, const graph::Op& op) const {
  const graph::OpCall call(graph, op);
  size_t bytes = 0;
  const bool found = any_of_kind(*this, op.kind, [&](const Implementation& row) {
    if (!row.supports(call)) return false;
    bytes = std::max(bytes, row.workspace_bytes(call));
    return row.available == nullptr;
  });
  LOCKSTEP_CHECK(found, "{} cannot run {} ({}) ", device, graph::name_of(op.kind), op.name);
  return bytes;
}

const Implementation& OpSet::choose(const graph::Graph& graph,
                                    const graph::Op& op,
                                    void* context,
                                    int lanes) const {
  const graph::OpCall call = graph::OpCall(graph, op, context).of_lanes({lanes});
  const Implementation* chosen = nullptr;
  any_of_kind(*this, op.kind, [&](const Implementation& row) {
    if (!row.supports(call) || (row.available != nullptr && !row.available(call))) return false;
    chosen = &row;
    return true;
  });
  LOCKSTEP_CHECK(
      chosen != nullptr, "{} cannot run {} ({}) ", device, graph::name_of(op.kind), op.name);
  return *chosen;
}

}  // namespace lockstep::exec
