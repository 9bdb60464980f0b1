#pragma once
// Error feedback: where a rank keeps the residuals of rounded sums (ErrorFeedbackResiduals in
// tree_sum_terms.h). Pure arithmetic.
//
// The problem: rounding every sum of the lanes' tree to 16 bits loses small contributions, and the
// same ones step after step. Error feedback (Seide et al., 2014) keeps what rounding took from a
// sum, its residual, and adds it to the same sum of the next step.
//
// The lanes are summed exactly in groups of neighbouring lanes. The sum of a group is rounded, and
// so is every sum above it:
//
//   groups     0      1      2      3          the sum of each group, and three joins
//               \    /        \    /
//               join 1        join 3           join m adds the terms [m - h, m) and [m, m + h);
//                    \        /                h is the lowest set bit of m
//                      join 2
//
// That makes 2 * groups - 1 rounded sums, each with a residual for every element of the flat
// buffer. A rank keeps the residuals of exactly the sums that it computes: those of its own groups
// and of their joins in full, those of joins across ranks for the part of each bucket that it sums
// at that level. In memory they follow each other in this order. The number of groups determines
// the bits, the number of ranks does not; so ranks may be at most the groups.

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/reduce/tree_sum_terms.h"
#include "collectives/sharding.h"
#include "collectives/topology.h"

namespace lockstep {

// The sum of `count` neighbouring lanes, beginning with `first`.
struct LaneSum {
  int first = 0;
  int count = 1;
  bool operator==(const LaneSum&) const = default;
};

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

  // The layout for a rank with neighbouring lanes and a flat buffer of `elements`.
  ErrorFeedbackLayout(int lanes, int groups, const Topology& topology, int rank, int64_t elements);

  // The number of 16-bit residuals that the rank keeps.
  int64_t elements() const { return end_; }
  const std::vector<Kept>& kept() const { return kept_; }

  // Residuals, in `data` of elements(), of a sum of this rank's own lanes, counted from its first
  // lane; from element `begin` of the flat buffer on. None if the sum is not rounded.
  ErrorFeedbackResiduals of_lanes(uint16_t* data, const LaneSum& local, int64_t begin) const;
  // Residuals of the joins of a level, for this rank's part of the bucket that begins at
  // `bucket_begin`.
  ErrorFeedbackResiduals of_level(uint16_t* data, size_t level, int64_t bucket_begin) const;

 private:
  struct Level {
    int64_t offset = 0;
    int parts = 1;
  };
  int group_lanes_;
  int local_groups_;
  int64_t flat_elements_;
  int64_t end_ = 0;
  std::vector<Level> levels_;
  std::vector<Kept> kept_;
};

}  // namespace lockstep
