// Catches: locations of ranks that are mixed up, or a host that is told by what only programs read.
#include "collectives/watch/rank_locations.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/base/host.h"
#include "tests/reference/thread_communicator.h"

namespace lockstep::collectives {
namespace {

TEST(RankLocations, EachRankKnowsThoseOfAll) {
  testing::run_ranks(3, [](Communicator& communicator) {
    const std::vector<RankLocation> locations = gather_locations(communicator);
    ASSERT_EQ(locations.size(), 3u);
    for (const RankLocation& location : locations) {
      EXPECT_EQ(location.machine, host_identity());
      EXPECT_EQ(location.host, host_name());
      EXPECT_EQ(location.process, ::getpid());
      EXPECT_EQ(location.pid_namespace.rfind("pid:[", 0), 0u) << location.pid_namespace;
    }
  });
}

TEST(RankLocations, ARankThatHasNotBegunIsNamed) {
  const RankLocation location{"node7/0f3c", "node7", 4711, "pid:[1]"};
  const FlightMoment moment = first_moment(2, location);
  EXPECT_EQ(moment.rank, 2);
  EXPECT_EQ(moment.host, "node7");
  EXPECT_EQ(moment.process, 4711);
  EXPECT_EQ(moment.beats, 0u);
}

}  // namespace
}  // namespace lockstep::collectives
