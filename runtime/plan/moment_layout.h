#pragma once
// The elements of the flat buffer for which an optimizer keeps moments: all trained parameters. The
// matrices that Muon updates have no second moment, and those of Adafactor none. Pure arithmetic,
// the same on every rank.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/layout/sharding.h"
#include "runtime/config/run_config.h"

namespace lockstep::plan {

struct ParameterLayout;

// The parameters without the last moment: Muon's matrices, which have only the first one, and those
// of which Adafactor keeps averages of rows and columns. None for other optimizers.
std::vector<size_t> slots_without_last_moment(const OptimizerConfig& config,
                                              const ParameterLayout& layout);
// Their ranges, each with the padding after it, in increasing order; adjacent ones are merged.
std::vector<collectives::Range> ranges_without_last_moment(const OptimizerConfig& config,
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
