#include "collectives/layout/topology.h"

#include <algorithm>

namespace lockstep::collectives {

std::vector<RankGroup> Topology::groups_of(int rank) const {
  const int node = rank / per_node, local = rank % per_node;
  std::vector<RankGroup> groups;
  if (per_node > 1) groups.push_back({node * per_node, 1, per_node});
  if (nodes > 1) groups.push_back({local, per_node, nodes});
  return groups;
}

std::vector<GatherStep> Topology::gather_steps(int rank) const {
  std::vector<GatherStep> steps;
  int slot_parts = 1;
  const std::vector<RankGroup> groups = groups_of(rank);
  for (size_t level = groups.size(); level-- > 0;) {
    const RankGroup& group = groups[level];
    const int group_parts = slot_parts * group.count;
    steps.push_back({part_of(rank) / group_parts * group_parts, slot_parts, group});
    slot_parts = group_parts;
  }
  return steps;
}

Topology topology_of(const std::vector<std::string>& node_of_rank) {
  const auto ranks = static_cast<int>(node_of_rank.size());
  const auto per_node =
      static_cast<int>(std::count(node_of_rank.begin(), node_of_rank.end(), node_of_rank.front()));
  const bool even = ranks % per_node == 0;
  const auto node = [&](int rank) -> const std::string& {
    return node_of_rank[static_cast<size_t>(rank)];
  };
  for (int rank = 0; rank < ranks; ++rank) {
    const int first = rank - rank % per_node;
    const bool new_name = rank != first || std::find(node_of_rank.begin(),
                                                     node_of_rank.begin() + first,
                                                     node(rank)) == node_of_rank.begin() + first;
    if (!even || node(rank) != node(first) || !new_name) return Topology::flat(ranks);
  }
  return {ranks / per_node, per_node};
}

}  // namespace lockstep::collectives
