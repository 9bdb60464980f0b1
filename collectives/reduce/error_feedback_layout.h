#pragma once
// Error feedback: where a rank keeps what rounding takes from the sums of the lanes' tree
// (ErrorFeedbackResiduals in tree_sum_terms.h). Pure arithmetic.
//
// The lanes are summed in groups of neighbouring ones. The sum of a group, exact so far, is the
// first to be rounded, and so is every sum above it: 2 * groups - 1 of them, each with a residual
// for every element of the flat buffer. A rank keeps those of its own groups whole, and of sums
// across ranks the parts that it sums.

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/reduce/tree_sum_terms.h"
#include "collectives/sharding.h"
#include "collectives/topology.h"

namespace lockstep {

// The sum of neighbouring lanes.
struct LaneSum {
  int first = 0;
  int count = 1;
  bool operator==(const LaneSum&) const = default;
};

// Of `lanes` lanes in `groups` groups, those that are rounded.
std::vector<LaneSum> rounded_sums(int lanes, int groups);

class ErrorFeedbackLayout {
 public:
  // Residuals of a rounded sum that a rank has.
  struct Kept {
    LaneSum sum;
    int parts = 1;  // of every bucket, of which
    int part = 0;   // this one, bucket after bucket
    int64_t offset = 0;
  };

  // Of a rank with neighbouring lanes. `elements`: of the flat buffer.
  ErrorFeedbackLayout(int lanes, int groups, const Topology& topology, int rank, int64_t elements);

  // Numbers that the rank keeps, of 16 bits each.
  int64_t elements() const { return end_; }
  const std::vector<Kept>& kept() const { return kept_; }

  // In `data`, of elements(): of a sum of the rank's own lanes, counted from its first one, from
  // element `begin` of the flat buffer on; none where it is not rounded.
  ErrorFeedbackResiduals of_lanes(uint16_t* data, const LaneSum& local, int64_t begin) const;
  // Of a level's sums, in this rank's part of the bucket that begins there.
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
