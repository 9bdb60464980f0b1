#include "runtime/exec/length_executors.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace lockstep {
namespace {

// Tokens that a graph computes of each sample.
int64_t length_of(const Graph& graph) {
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::kLeadingColumns) return graph.shape(op.outputs[0]).columns();
  }
  LOCKSTEP_CHECK(false, "a graph of a length takes its columns ");
  return 0;
}

}  // namespace

LengthExecutors::LengthExecutors(PlannedGraph whole,
                                 std::span<const Graph> shorter,
                                 std::span<const ProgramPlan> shorter_plans,
                                 const ParameterLayout& layout,
                                 Backend& backend,
                                 ExecutorMemory memory,
                                 int lanes_together) {
  LOCKSTEP_CHECK(shorter.size() == shorter_plans.size() &&
                 (shorter.empty() || lanes_together == 1));
  for (size_t i = 0; i < shorter.size(); ++i) {
    planned_.push_back({shorter[i], shorter_plans[i]});
    lengths_.push_back(length_of(shorter[i]));
  }
  planned_.push_back(whole);
  LOCKSTEP_CHECK(std::ranges::is_sorted(lengths_));
  for (const PlannedGraph& planned : planned_)
    executors_.emplace_back(planned.graph, planned.plan, layout, backend, memory, lanes_together);
}

size_t LengthExecutors::fit(int64_t tokens) const {
  return static_cast<size_t>(std::ranges::lower_bound(lengths_, tokens) - lengths_.begin());
}

void LengthExecutors::observe(OpObserver* observer) {
  for (Executor& executor : executors_) executor.observe(observer);
}

}  // namespace lockstep
