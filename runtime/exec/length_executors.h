#pragma once
// Executors of one program for several lengths of samples (execution.length_buckets): the whole
// context, and shorter ones that compute the first tokens of each sample.

#include <span>
#include <vector>

#include "runtime/exec/executor.h"

namespace lockstep {

// A graph and its plan.
struct PlannedGraph {
  const Graph& graph;
  const ProgramPlan& plan;
};

class LengthExecutors {
 public:
  // `shorter` in increasing order of their lengths, with plans of plan_shorter(); may be empty. They
  // share `memory`, whose arena is for the largest of them; only one runs at a time. Keeps
  // references to graphs, plans, backend and gather.
  LengthExecutors(PlannedGraph whole,
                  std::span<const Graph> shorter,
                  std::span<const ProgramPlan> shorter_plans,
                  const ParameterLayout& layout,
                  Backend& backend,
                  ExecutorMemory memory,
                  int lanes_together = 1);

  size_t size() const { return executors_.size(); }
  // The number of the smallest one that computes the first `tokens` tokens of its samples.
  size_t fit(int64_t tokens) const;
  Executor& of(int64_t tokens) { return executors_[fit(tokens)]; }
  const PlannedGraph& planned(int64_t tokens) const { return planned_[fit(tokens)]; }
  Executor& whole() { return executors_.back(); }

  void observe(OpObserver* observer);

 private:
  std::vector<PlannedGraph> planned_;  // in increasing order of lengths, the whole context last
  std::vector<int64_t> lengths_;       // of the shorter ones
  std::vector<Executor> executors_;
};

}  // namespace lockstep
