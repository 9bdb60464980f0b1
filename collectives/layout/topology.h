#pragma once
// How the ranks are spread over the nodes, and how an exchange runs in two levels. Pure arithmetic,
// the same on every rank.
//
// If every node has the same number of ranks and these are consecutive, a bucket is summed within
// the nodes first and then between them. Rank l of a node receives part l of `per_node` parts of
// the bucket from the other ranks of the node and sums them. It then exchanges the sub-parts of
// that part with the ranks l of the other nodes. So a node sends each byte of the gradients over
// the network once, however many ranks it has, if the node's lanes add up to one sum (lane_tree.h).
// The all-gather takes the same steps in the opposite order.

#include <string>
#include <vector>

namespace lockstep::collectives {

// The ranks first, first + stride, ...: `count` of them.
struct RankGroup {
  int first = 0;
  int stride = 1;
  int count = 1;

  int rank_of(int index) const { return first + index * stride; }
  int index_of(int rank) const { return (rank - first) / stride; }
  bool operator==(const RankGroup&) const = default;
};

// Calls body(from, to), indices in the group, once for each distance: at that distance the rank
// receives from `from` and sends to `to`. So no rank is the first target of all others.
template <typename Body>
void for_each_partner(const RankGroup& group, int rank, Body body) {
  const int me = group.index_of(rank);
  for (int distance = 1; distance < group.count; ++distance)
    body((me - distance + group.count) % group.count, (me + distance) % group.count);
}

// An in-place all-gather among the ranks of `group`, each of which holds `slot_parts` parts.
struct GatherStep {
  int first_part = 0;  // of the first slot
  int slot_parts = 1;
  RankGroup group;
};

struct Topology {
  int nodes = 1;
  int per_node = 1;  // node n has the ranks [n * per_node, (n + 1) * per_node)
  // The ranks of a node read each other's gradients in place. They have one copy of the parameters
  // or, in ZeRO stage 0, write the sums into each other's buffers. See shm/node_memory.h.
  bool shares_memory = false;

  // One level: every rank exchanges with every other.
  static Topology flat(int ranks) { return {1, ranks}; }

  int ranks() const { return nodes * per_node; }
  // Which of ranks() equal parts of each bucket a rank owns.
  int part_of(int rank) const { return rank % per_node * nodes + rank / per_node; }
  // The groups that a rank exchanges with, level by level, in the order of a reduction.
  std::vector<RankGroup> groups_of(int rank) const;
  // The steps by which a rank gathers all parts of a bucket, in order: one for each of groups_of().
  std::vector<GatherStep> gather_steps(int rank) const;

  bool operator==(const Topology&) const = default;
};

// The topology of the nodes with these names. If the ranks of some name are not consecutive, or the
// names do not have equally many ranks, the topology is flat.
Topology topology_of(const std::vector<std::string>& node_of_rank);

}  // namespace lockstep::collectives
