#pragma once
// Error feedback: where a rank keeps the residuals of rounded sums (ErrorFeedbackResiduals in
// tree_sum_terms.h). Pure arithmetic.
//
// The problem: rounding every sum of the lanes' tree to 16 bits loses small contributions, and the
// same ones step after step. Error feedback (Seide et al., 2014) keeps what rounding took from a
// sum, its residual, and adds it to the same sum of the next step.
//
// The lanes are summed exactly in groups, equal nodes of the tree. The sum of a group is rounded,
// and so is every sum above it:
//
//   groups     0      1      2      3          the sum of each group, and three joins
//               \    /        \    /
//               join 1        join 3           join m adds two sums, of which the right one begins
//                    \        /                with group m
//                      join 2
//
// That makes 2 * groups - 1 rounded sums, each with a residual for every element of the flat
// buffer. A rank keeps the residuals of exactly the sums that it computes: those of its own groups
// and of their joins in full, those of joins across ranks for the part of each bucket that it sums
// at that level. In memory they follow each other in this order. The number of groups determines
// the bits, the number of ranks does not; so ranks may be at most the groups, and have whole
// groups.

#include <cstdint>
#include <vector>

#include "collectives/layout/lane_tree.h"
#include "collectives/layout/sharding.h"
#include "collectives/layout/topology.h"
#include "collectives/layout/tree_sum_terms.h"

namespace lockstep::collectives {

// The sums that are rounded if `lanes` lanes are in `groups` groups.
std::vector<LaneSum> rounded_sums(int lanes, int groups);

class ErrorFeedbackLayout {
 public:
  // The residuals of one rounded sum that a rank keeps.
  struct Kept {
    LaneSum sum;
    int parts = 1;  // into which every bucket is cut,
    int part = 0;   // and the part kept here, bucket after bucket
    int64_t offset = 0;
  };

  // The layout for a rank with neighbouring lanes and a flat buffer of `elements`. A group is
  // shares.unit lanes.
  ErrorFeedbackLayout(const LaneShares& shares,
                      const Topology& topology,
                      int rank,
                      int64_t elements);

  // The number of 16-bit residuals that the rank keeps.
  int64_t elements() const { return end_; }
  const std::vector<Kept>& kept() const { return kept_; }

  // Residuals, in `data` of elements(), of a sum of this rank's own lanes, from element `begin` of
  // the flat buffer on. None if the sum is not rounded.
  ErrorFeedbackResiduals of_lanes(uint16_t* data, const LaneSum& sum, int64_t begin) const;
  // Residuals of the joins in sum number `sum` of a level, for this rank's part of the bucket that
  // begins at `bucket_begin`.
  ErrorFeedbackResiduals of_level(uint16_t* data,
                                  size_t level,
                                  size_t sum,
                                  int64_t bucket_begin) const;

 private:
  struct Level {
    std::vector<int64_t> offsets;  // by sum
    int parts = 1;
  };
  void keep(const LaneSum& sum, int parts, int part);

  int64_t flat_elements_;
  int64_t end_ = 0;
  size_t of_own_lanes_ = 0;  // the first so many of kept_
  std::vector<Level> levels_;
  std::vector<Kept> kept_;
};

// The residuals of the rank that keeps the most.
int64_t most_residuals(const LaneShares& shares, const Topology& topology, int64_t elements);

}  // namespace lockstep::collectives
