#include "collectives/layout/exchange_levels.h"

#include <algorithm>

namespace lockstep::collectives {
namespace {

using Levels = std::vector<ExchangeLevel>;

// Calls visit(first rank, levels) for each group of ranks whose levels have the same terms: those
// of a node, or all; and for each turn if the ranks run single lanes in turns.
void for_all_levels(const Topology& topology,
                    const LaneShares& shares,
                    const std::function<void(int, const Levels&)>& visit) {
  const int groups = topology.per_node > 1 ? topology.nodes : 1;
  const auto visit_all = [&](const std::function<LaneSum(int)>& lanes_of) {
    for (int first = 0; first < groups * topology.per_node; first += topology.per_node)
      visit(first, exchange_levels(topology, first, shares.lanes, lanes_of));
  };
  if (shares.order != LaneOrder::kEachSummed) {
    return visit_all([&](int rank) {
      const LocalLanes lanes = shares.of(rank);
      return LaneSum{lanes.first, lanes.count};
    });
  }
  for (int turn = 0; turn < shares.most(); ++turn)
    visit_all([&](int rank) { return shares.turn(turn, rank); });
}

int64_t round_up(int64_t n, int64_t divisor) { return (n + divisor - 1) / divisor; }

}  // namespace

std::vector<ExchangeLevel> exchange_levels(const Topology& topology,
                                           int rank,
                                           int lanes,
                                           const std::function<LaneSum(int rank)>& lanes_of) {
  std::vector<ExchangeLevel> levels;
  int spanned = 1;  // ranks whose lanes a rank has added up
  for (const RankGroup& group : topology.groups_of(rank)) {
    ExchangeLevel& level = levels.emplace_back();
    level.group = group;
    for (int i = 0; i < group.count; ++i) {
      const int first = group.rank_of(i) / spanned * spanned;
      LaneSum range = lanes_of(first);
      for (int r = first + 1; r < first + spanned; ++r) range.count += lanes_of(r).count;
      const std::vector<LaneSum> offered = largest_sums(range, lanes);
      level.offered.push_back(static_cast<int>(offered.size()));
      level.terms.insert(level.terms.end(), offered.begin(), offered.end());
    }
    level.sums = join_terms(level.terms, lanes);
    spanned *= group.count;
  }
  return levels;
}

int64_t staging_elements(int64_t elements,
                         const Topology& topology,
                         const std::vector<ExchangeLevel>& levels,
                         DType wire) {
  int64_t moved = 0, kept = 0, part = round_up(elements, topology.ranks()) * topology.ranks();
  for (size_t k = 0; k < levels.size(); ++k) {
    const ExchangeLevel& level = levels[k];
    const int64_t sent = part;
    part /= level.group.count;
    const auto terms = static_cast<int64_t>(level.terms.size());
    if (k > 0 || !topology.shares_memory) {
      moved = std::max(moved, terms * part);
      if (wire != DType::kF32) {
        const int64_t most = *std::ranges::max_element(level.offered);
        moved = std::max(moved, round_up(most * sent + terms * part, 2));
      }
    }
    if (k + 1 < levels.size() && level.sums.size() > 1)
      kept = static_cast<int64_t>(level.sums.size()) * part;
  }
  return moved + kept;
}

int64_t staging_elements(int64_t elements,
                         const Topology& topology,
                         const LaneShares& shares,
                         DType wire) {
  int64_t most = 0;
  for_all_levels(topology, shares, [&](int, const Levels& levels) {
    most = std::max(most, staging_elements(elements, topology, levels, wire));
  });
  return most;
}

int most_terms(const Topology& topology, const LaneShares& shares) {
  size_t most = 1;
  for_all_levels(topology, shares, [&](int, const Levels& levels) {
    for (const ExchangeLevel& level : levels) most = std::max(most, level.terms.size());
  });
  return static_cast<int>(most);
}

std::vector<std::vector<int>> offered_sums(const Topology& topology, const LaneShares& shares) {
  std::vector<std::vector<int>> offered(static_cast<size_t>(topology.ranks()));
  for (auto& of_rank : offered) of_rank.resize(topology.groups_of(0).size());
  for_all_levels(topology, shares, [&](int first, const Levels& levels) {
    const int count = topology.per_node > 1 ? topology.per_node : topology.ranks();
    for (int rank = first; rank < first + count; ++rank) {
      size_t k = 0;
      for (const RankGroup& group : topology.groups_of(rank)) {
        const auto index = static_cast<size_t>(group.index_of(rank));
        offered[static_cast<size_t>(rank)][k] += levels[k].offered[index];
        ++k;
      }
    }
  });
  return offered;
}

}  // namespace lockstep::collectives
