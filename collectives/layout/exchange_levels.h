#pragma once
// What a reduction exchanges at each level of the topology, and the staging memory that it takes.
// Pure arithmetic.
//
// A rank offers the sums into which it has added its lanes: often one, more if its lanes are not a
// node of the tree (collectives/layout/lane_tree.h). At level 0 the ranks of a node exchange them,
// and each adds its part of all of them as far as the tree goes. At level 1 it exchanges what that
// has left with the other nodes.

#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/layout/lane_tree.h"
#include "collectives/layout/sharding.h"
#include "collectives/layout/topology.h"
#include "runtime/base/dtype.h"

namespace lockstep::collectives {

struct ExchangeLevel {
  RankGroup group;
  std::vector<int> offered;       // by index in the group: the sums that it offers
  std::vector<LaneSum> terms;     // all of them, those of index 0 first
  std::vector<JoinedTerms> sums;  // of the terms: what the level leaves
};

// The levels of a rank, if rank r has added up the neighbouring lanes lanes_of(r), perhaps none.
std::vector<ExchangeLevel> exchange_levels(const Topology& topology,
                                           int rank,
                                           int lanes,
                                           const std::function<LaneSum(int rank)>& lanes_of);

// Floats of staging memory for an exchange of a range, or of several ranges, of `elements` in
// total, each a multiple of the ranks. They hold what is sent in 16 bits, what is received, and
// sums between two levels.
int64_t staging_elements(int64_t elements,
                         const Topology& topology,
                         const std::vector<ExchangeLevel>& levels,
                         DType wire);

// The most that any rank needs to sum the lanes as they are shared.
int64_t staging_elements(int64_t elements,
                         const Topology& topology,
                         const LaneShares& shares,
                         DType wire);

// How many sums a group has at most at a level.
int most_terms(const Topology& topology, const LaneShares& shares);

// How many sums each rank offers at each level in a step: by rank, then by level.
std::vector<std::vector<int>> offered_sums(const Topology& topology, const LaneShares& shares);

}  // namespace lockstep::collectives
