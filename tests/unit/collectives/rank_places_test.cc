// Catches: places of ranks that are mixed up, or a host that is told by what only programs read.
#include "collectives/watch/rank_places.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/base/host.h"
#include "tests/reference/thread_communicator.h"

namespace lockstep {
namespace {

TEST(RankPlaces, EachRankKnowsThoseOfAll) {
  testing::run_ranks(3, [](Communicator& communicator) {
    const std::vector<RankPlace> places = gather_places(communicator);
    ASSERT_EQ(places.size(), 3u);
    for (const RankPlace& place : places) {
      EXPECT_EQ(place.machine, host_identity());
      EXPECT_EQ(place.host, host_name());
      EXPECT_EQ(place.process, ::getpid());
      EXPECT_EQ(place.processes.rfind("pid:[", 0), 0u) << place.processes;
    }
  });
}

TEST(RankPlaces, ARankThatHasNotBegunIsNamed) {
  const RankPlace place{"node7/0f3c", "node7", 4711, "pid:[1]"};
  const FlightMoment moment = first_moment(2, place);
  EXPECT_EQ(moment.rank, 2);
  EXPECT_EQ(moment.host, "node7");
  EXPECT_EQ(moment.process, 4711);
  EXPECT_EQ(moment.beats, 0u);
}

}  // namespace
}  // namespace lockstep
