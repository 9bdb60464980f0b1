#include "runtime/exec/length_bucket_executors.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace lockstep::exec {
namespace {

// The tokens of each sample that a graph computes: it takes them from its input first.
int64_t length_of(const graph::Graph& graph) {
  for (const graph::Op& op : graph.ops) {
    if (op.inputs.first() == graph.inputs[graph::GraphIn::kInput])
      return graph.shape(op.outputs.first()).columns();
  }
  LOCKSTEP_CHECK(false, "the graph of a length bucket does not read its input ");
  return 0;
}

}  // namespace

LengthBucketExecutors::LengthBucketExecutors(PlannedGraph full_context,
                                             std::span<const graph::Graph> length_buckets,
                                             std::span<const plan::ProgramPlan> length_bucket_plans,
                                             const plan::ParameterLayout& layout,
                                             Backend& backend,
                                             ExecutorMemory memory,
                                             const graph::Graph* joint) {
  LOCKSTEP_CHECK(length_buckets.size() == length_bucket_plans.size() &&
                 (length_buckets.empty() || full_context.plan.lanes == 1));
  for (size_t i = 0; i < length_buckets.size(); ++i) {
    planned_.push_back({length_buckets[i], length_bucket_plans[i]});
    lengths_.push_back(length_of(length_buckets[i]));
  }
  planned_.push_back(full_context);
  LOCKSTEP_CHECK(std::ranges::is_sorted(lengths_));
  for (const PlannedGraph& planned : planned_)
    executors_.emplace_back(planned.graph, planned.plan, layout, backend, memory, joint);
}

size_t LengthBucketExecutors::fit(int64_t tokens) const {
  return static_cast<size_t>(std::ranges::lower_bound(lengths_, tokens) - lengths_.begin());
}

void LengthBucketExecutors::observe(OpObserver* observer) {
  for (Executor& executor : executors_) executor.observe(observer);
}

}  // namespace lockstep::exec
