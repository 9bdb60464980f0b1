// Catches: a residual that no rank keeps, or two do, or that lies on another one's.
#include "collectives/layout/error_feedback_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace lockstep::collectives {
namespace {

// Every residual of every sum lies with somebody, once.
TEST(ErrorFeedbackLayout, RanksKeepAllResidualsBetweenThem) {
  constexpr int64_t kElements = 4096;
  const Range buffer = {0, kElements};
  for (const Topology& topology : {Topology{1, 1},
                                   {1, 2},
                                   {1, 8},
                                   {2, 1},
                                   {2, 4},
                                   {4, 2},
                                   {8, 1},
                                   {2, 4, true},
                                   {1, 4},
                                   {2, 2, true}}) {
    for (const int groups : {8, 16}) {
      std::map<std::pair<int, int>, std::vector<Range>> kept;
      for (int rank = 0; rank < topology.ranks(); ++rank) {
        const LaneShares shares = {16, topology.ranks(), 16 / groups};
        const ErrorFeedbackLayout layout(shares, topology, rank, kElements);
        int64_t end = 0;
        for (const ErrorFeedbackLayout::Kept& part : layout.kept()) {
          EXPECT_EQ(part.offset, end);
          end += kElements / part.parts;
          kept[{part.sum.first, part.sum.count}].push_back(part_of(buffer, part.part, part.parts));
        }
        EXPECT_EQ(layout.elements(), end);
      }
      EXPECT_EQ(kept.size(), rounded_sums(16, groups).size());
      for (const LaneSum& sum : rounded_sums(16, groups)) {
        std::vector<Range>& ranges = kept[{sum.first, sum.count}];
        std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
          return a.begin < b.begin;
        });
        int64_t end = 0;
        for (const Range& range : ranges) {
          EXPECT_EQ(range.begin, end);
          end = range.end;
        }
        EXPECT_EQ(end, kElements);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::collectives
