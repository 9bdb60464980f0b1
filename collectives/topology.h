#pragma once
// How the ranks lie on the nodes, and what follows for an exchange in two levels: pure arithmetic,
// the same on every rank.
//
// Where every node has equally many ranks and they follow each other, a bucket is summed first
// within the nodes and then between them: rank l of a node receives the l-th of `per_node` parts of
// the bucket from the ranks beside it, sums them, and exchanges that part's sub-parts with the
// ranks l of the other nodes. So a node sends each byte of the gradients over the network once,
// however many ranks it has. The additions are those of the tree over all ranks, whose lower levels
// lie within a node. The way back, the gather, takes the same steps in the opposite order.

#include <string>
#include <vector>

namespace lockstep {

// The ranks first, first + stride, ...: `count` of them.
struct RankGroup {
  int first = 0;
  int stride = 1;
  int count = 1;

  int rank_of(int index) const { return first + index * stride; }
  int index_of(int rank) const { return (rank - first) / stride; }
  bool operator==(const RankGroup&) const = default;
};

// What a rank exchanges with the others of its group, in the order of their distance, so that no
// rank is everybody's first target: calls body(from, to), places in the group, for each distance.
template <typename Body>
void for_each_partner(const RankGroup& group, int rank, Body body) {
  const int me = group.index_of(rank);
  for (int distance = 1; distance < group.count; ++distance)
    body((me - distance + group.count) % group.count, (me + distance) % group.count);
}

// An in-place all-gather between the ranks of `group`, each of which holds `slot_parts` parts.
struct GatherStep {
  int first_part = 0;  // of the first slot
  int slot_parts = 1;
  RankGroup group;
};

struct Topology {
  int nodes = 1;
  int per_node = 1;  // node n has the ranks [n * per_node, (n + 1) * per_node)
  // The ranks of a node read each other's gradients in place, and have one copy of the parameters
  // or, in ZeRO stage 0, write the sums to each other: see shm/node_memory.h.
  bool shares_memory = false;

  // One level: every rank exchanges with every other.
  static Topology flat(int ranks) { return {1, ranks}; }

  int ranks() const { return nodes * per_node; }
  // The part of each bucket, of ranks() equal ones, that a rank owns, and whose part it is.
  int part_of(int rank) const { return rank % per_node * nodes + rank / per_node; }
  int owner_of(int part) const { return part % nodes * per_node + part / nodes; }
  // Those that a rank exchanges with, level by level in the order of a reduction.
  std::vector<RankGroup> groups_of(int rank) const;
  // What a rank does, one after the other, to gather all parts of a bucket. As many steps as
  // groups_of() has groups.
  std::vector<GatherStep> gather_steps(int rank) const;

  bool operator==(const Topology&) const = default;
};

// The ranks that are called the same follow each other, are equally many for each name, and a power
// of two: the topology of nodes so named. Else flat.
Topology topology_of(const std::vector<std::string>& node_of_rank);

}  // namespace lockstep
