#pragma once
// Of which elements of the flat buffer an optimizer keeps moments: of all that a step moves, but that
// there is no second moment of the matrices that Muon takes. Pure arithmetic, the same on every rank.

#include <cstdint>
#include <vector>

#include "collectives/sharding.h"
#include "runtime/config/run_config.h"

namespace lockstep {

struct ParameterLayout;

// What has the first moment alone: Muon's matrices, each with the padding behind it. Increasing; those
// that touch are one range. None with other optimizers.
std::vector<Range> one_moment_ranges(const OptimizerConfig& config, const ParameterLayout& layout);
std::vector<Range> one_moment_ranges(const MuonConfig& config, const ParameterLayout& layout);

// The parts of `range` that lie outside of `holes`, which are as those above.
std::vector<Range> outside(const Range& range, const std::vector<Range>& holes);

// Of `parts` owners of one part of every bucket each: the most elements outside of `holes` that one
// of them has.
int64_t most_outside(const std::vector<Range>& buckets, const std::vector<Range>& holes, int parts);

}  // namespace lockstep
