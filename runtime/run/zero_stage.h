#pragma once
// What comm.zero_stage AUTO means.

#include <string>

#include "runtime/config/run_config.h"
#include "runtime/exec/op_set.h"
#include "runtime/plan/sharding_plan.h"

namespace lockstep::run {

struct ZeroStageChoice {
  int stage = 1;
  std::string reason = {};  // "AUTO: the network sends 1 Gbit/s, ..."; empty: the config's own
};

// The rate of a node's network, in Gbit/s, below which AUTO is stage 0; 0 if it is stage 1 at any
// rate. Stage 1 sends back parameters in the type of the computation, stage 0 sums as they are
// sent; but then every rank updates all parameters, and the ranks of a node send each other what
// else they share in memory.
double stage_0_below_gbit(const RunConfig& config,
                          const collectives::Topology& placed,
                          const exec::OpSet& ops);

// The stage of a training on ranks with this placement; execution.precision is resolved.
// `link_gbit`: the measured rate of a node's network, if comm.link_gbit is 0; 0: not measured.
ZeroStageChoice choose_zero_stage(const RunConfig& config,
                                  const collectives::Topology& placed,
                                  const exec::OpSet& ops,
                                  double link_gbit);

}  // namespace lockstep::run
