#pragma once
// The elements of the flat buffer for which an optimizer keeps moments: all trained parameters. The
// matrices that Muon updates have no second moment. Pure arithmetic, the same on every rank.

#include <cstdint>
#include <vector>

#include "collectives/layout/sharding.h"
#include "runtime/config/run_config.h"

namespace lockstep::plan {

struct ParameterLayout;

// The ranges with only a first moment: Muon's matrices, each with the padding after it. In
// increasing order; adjacent ones are merged. Empty for other optimizers.
std::vector<collectives::Range> one_moment_ranges(const OptimizerConfig& config,
                                                  const ParameterLayout& layout);
std::vector<collectives::Range> one_moment_ranges(const MuonConfig& config,
                                                  const ParameterLayout& layout);

// The parts of `range` outside of `holes`, which are in increasing order and disjoint.
std::vector<collectives::Range> outside(const collectives::Range& range,
                                        const std::vector<collectives::Range>& holes);

// The max number of elements outside of `holes` that any of `parts` owners has, if each owns one
// part of every bucket.
int64_t max_outside(const std::vector<collectives::Range>& buckets,
                    const std::vector<collectives::Range>& holes,
                    int parts);

}  // namespace lockstep::plan
