// Catches: a part of a bucket that no rank or two ranks own, levels that do not meet, and nodes
// that are taken for even where they are not.
#include "collectives/agree/find_topology.h"
#include "collectives/gather/gather_parts.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "tests/reference/thread_communicator.h"

namespace lockstep::collectives {
namespace {

const std::vector<Topology> kTopologies = {{1, 1}, {1, 4}, {4, 1}, {2, 2}, {2, 4}, {4, 2}, {3, 2}};

TEST(Topology, EveryPartHasOneOwner) {
  for (const Topology& topology : kTopologies) {
    std::set<int> parts;
    for (int rank = 0; rank < topology.ranks(); ++rank) parts.insert(topology.part_of(rank));
    EXPECT_EQ(parts.size(), static_cast<size_t>(topology.ranks()));
    EXPECT_EQ(*parts.rbegin(), topology.ranks() - 1);
  }
}

TEST(Topology, GroupsHaveThisRankAndOthersOfTheirNodeOrPlace) {
  const Topology topology{2, 4};
  const auto groups = topology.groups_of(6);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0], (RankGroup{4, 1, 4}));  // its node
  EXPECT_EQ(groups[1], (RankGroup{2, 4, 2}));  // the ranks 2 of both nodes
  EXPECT_EQ(groups[1].rank_of(1), 6);
  EXPECT_EQ(groups[1].index_of(6), 1);
  EXPECT_TRUE(Topology{}.groups_of(0).empty());
}

TEST(Topology, GatherBringsEveryPartToItsPlace) {
  for (const Topology& topology : kTopologies) {
    const int ranks = topology.ranks();
    testing::run_ranks(ranks, [&](Communicator& communicator) {
      std::vector<int32_t> buffer(static_cast<size_t>(2 * ranks), -1);
      const int mine = topology.part_of(communicator.rank());
      for (int i : {0, 1}) buffer[static_cast<size_t>(2 * mine + i)] = 2 * mine + i;
      gather_parts(communicator, topology, reinterpret_cast<std::byte*>(buffer.data()), 8);
      for (int i = 0; i < 2 * ranks; ++i) ASSERT_EQ(buffer[static_cast<size_t>(i)], i);
    });
  }
}

TEST(Topology, NodesAreEvenAndTheirRanksFollowEachOther) {
  EXPECT_EQ(topology_of({"a"}), (Topology{1, 1}));
  EXPECT_EQ(topology_of({"a", "a", "a", "a"}), (Topology{1, 4}));
  EXPECT_EQ(topology_of({"a", "b", "c", "d"}), (Topology{4, 1}));
  EXPECT_EQ(topology_of({"b", "b", "a", "a"}), (Topology{2, 2}));
  EXPECT_EQ(topology_of({"a", "a", "a", "b", "b", "b"}), (Topology{2, 3}));
  for (const std::vector<std::string>& flat :
       std::vector<std::vector<std::string>>{{"a", "b", "a", "b"},       // round robin
                                             {"a", "a", "a", "b"},       // uneven
                                             {"a", "a", "b", "b", "c"},  // the last one short
                                             {"a", "b", "c", "a"}}) {
    EXPECT_EQ(topology_of(flat), Topology::flat(static_cast<int>(flat.size()))) << flat.size();
  }
}

}  // namespace
}  // namespace lockstep::collectives
