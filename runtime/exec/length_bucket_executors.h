#pragma once
// Executors of one program for several sample lengths (execution.length_buckets): the whole
// context, and shorter lengths that compute only the first tokens of each sample.

#include <span>
#include <vector>

#include "runtime/exec/executor.h"

namespace lockstep::exec {

// A graph and its plan.
struct PlannedGraph {
  const graph::Graph& graph;
  const plan::ProgramPlan& plan;
};

class LengthBucketExecutors {
 public:
  // `length_buckets` are in increasing order of length and may be empty; their plans come from
  // plan_length_bucket(). All executors share `memory`, whose arena is large enough for each, and
  // only one runs at a time. `joint`: see Executor. Keeps references to graphs, plans, backend
  // and gather.
  LengthBucketExecutors(PlannedGraph full_context,
                        std::span<const graph::Graph> length_buckets,
                        std::span<const plan::ProgramPlan> length_bucket_plans,
                        const plan::ParameterLayout& layout,
                        Backend& backend,
                        ExecutorMemory memory,
                        const graph::Graph* joint = nullptr);

  size_t size() const { return executors_.size(); }
  // The index of the shortest executor that computes the first `tokens` tokens of its samples.
  size_t fit(int64_t tokens) const;
  Executor& of(int64_t tokens) { return executors_[fit(tokens)]; }
  const PlannedGraph& planned(int64_t tokens) const { return planned_[fit(tokens)]; }
  Executor& full_context() { return executors_.back(); }

  void observe(OpObserver* observer);

 private:
  std::vector<PlannedGraph> planned_;  // in increasing order of length, the whole context last
  std::vector<int64_t> lengths_;       // of the length buckets
  std::vector<Executor> executors_;
};

}  // namespace lockstep::exec
