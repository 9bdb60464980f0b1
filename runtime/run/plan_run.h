#pragma once
// Stage 7 of a run's preparation: the plan of its graphs.

#include "runtime/plan/plan.h"
#include "runtime/run/build_graphs.h"
#include "runtime/run/defaults.h"

namespace lockstep::run {

struct RunPlan {
  plan::Plan plan;
  int64_t train_ring_batches = 0, eval_ring_batches = 0;  // read ahead by the loaders
};

// Plans the graphs of `global_batch` with these defaults. Throws ConfigError.
RunPlan plan_run(const ResolvedRun& run,
                 const plan::RunGraphs& graphs,
                 const RunDefaults& defaults,
                 int64_t global_batch);

}  // namespace lockstep::run
