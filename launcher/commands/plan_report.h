#pragma once
// What `plan` prints without a forecast: the memory of a run, its work and its traffic.

#include <string>

#include "launcher/commands/plan_options.h"
#include "runtime/base/json.h"
#include "runtime/run/fit.h"
#include "runtime/run/lanes.h"
#include "runtime/run/prepared_run.h"

namespace lockstep::launcher {

// `local`: the ranks of a host. `step_flops`: of a rank.
Json plan_json(const run::PreparedRun& prepared,
               const run::LaneUse& lanes,
               int local,
               double step_flops);

// Prints the plan for a reader: the memory table, then the work, the traffic and the length of the
// run. `choices`: precision and lanes, with the reasons.
void print_plan(const PlanCommandOptions& options,
                const run::PreparedRun& prepared,
                const std::string& choices,
                const run::LaneUse& lanes,
                int local,
                double step_flops);

// Prints, with comm.tune_buckets and several ranks, for which size of buckets the plan is: the one
// that the run folder has on record, or the config's.
void print_tuned_buckets(const RunConfig& config, bool recorded);

// Prints, if this host has several NUMA domains, how to start a rank for each, and adds it to
// `json`.
void propose_domain_ranks(const PlanCommandOptions& options,
                          const run::PreparedRun& prepared,
                          Json& json);

// Prints the offset and lifetime of each tensor of the training graph in the arena.
void print_placements(const run::PreparedRun& prepared);

// The memory of the run's device, a GPU that --on names or that is here, and of its host, which may
// be a CPU node that --on names.
run::MemoryLimits limits_for(const PlanCommandOptions& options,
                             const PlanPlace& place,
                             const run::PreparedRun& prepared);

// Throws MemoryError if the run does not fit. As `train` does, it goes without a snapshot first.
void require_it_fits(const run::PreparedRun& prepared, int local, const run::MemoryLimits& limits);

}  // namespace lockstep::launcher
