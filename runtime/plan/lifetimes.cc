// Greedy placement by lifetime (the heuristic of "greedy by size" allocators): from the largest
// block to the smallest, each at the lowest offset that is free throughout its life.
//
// The blocks that live together with a block are found with a segment tree over the ops. A node
// stands for a range of ops and holds the bytes that are taken
//   - by blocks that live through its whole range but not through its parent's (`through`),
//   - by blocks that live during some of its range but not through its parent's (`within`).
// The ops of a block are the ranges of about 2 log(ops) nodes. The blocks that live with it are the
// `within` of these nodes and the `through` of their ancestors. Adjacent bytes are merged into one
// interval, so packed memory is a few intervals, however many blocks lie there. So n blocks take
// about n log²(n) steps; comparing each with each would take n².
#include "runtime/plan/lifetimes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "runtime/base/error.h"

namespace lockstep::plan {
namespace {

constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

// A set of offsets, stored as intervals that do not touch.
class Intervals {
 public:
  void add(size_t begin, size_t end) {
    auto next = ends_.upper_bound(begin);
    if (next != ends_.begin() && std::prev(next)->second >= begin) {
      --next;
      begin = next->first;
    }
    while (next != ends_.end() && next->first <= end) {
      end = std::max(end, next->second);
      next = ends_.erase(next);
    }
    ends_.emplace_hint(next, begin, end);
  }
  // The first offset >= `offset` that is not in the set, and the next one that is.
  struct Gap {
    size_t begin, end;
  };
  Gap gap_from(size_t offset) const {
    const auto next = ends_.upper_bound(offset);
    const size_t end = next == ends_.end() ? kNowhere : next->first;
    return {next == ends_.begin() ? offset : std::max(offset, std::prev(next)->second), end};
  }

 private:
  std::map<size_t, size_t> ends_;  // end by begin
};

class TakenByTime {
 public:
  explicit TakenByTime(int ops) : ops_(ops), nodes_(size_t{4} * static_cast<size_t>(ops)) {}

  void add(const Lifetime& block) { add(block, 1, 0, ops_ - 1); }

  // The lowest offset at which `block` fits.
  size_t lowest(const Lifetime& block) {
    others_.clear();
    collect(block, 1, 0, ops_ - 1);
    for (size_t offset = 0;;) {
      size_t begin = offset, end = kNowhere;
      for (const Intervals* taken : others_) {
        const Intervals::Gap gap = taken->gap_from(begin);
        begin = gap.begin;
        end = std::min(end, gap.end);
      }
      // If a later set has moved `begin`, an earlier one may have taken the new offset: search
      // again.
      if (begin == offset && end - begin >= block.bytes) return offset;
      offset = begin == offset ? end : begin;
    }
  }

 private:
  struct Node {
    Intervals through, within;
  };

  // Node `number` stands for the ops [first, last], its children for the two halves.
  void add(const Lifetime& block, size_t number, int first, int last) {
    if (block.last_op < first || last < block.first_op) return;
    Node& node = nodes_[number];
    const size_t end = block.offset + block.bytes;
    node.within.add(block.offset, end);
    if (block.first_op <= first && last <= block.last_op) {
      node.through.add(block.offset, end);
      return;
    }
    const int middle = first + (last - first) / 2;
    add(block, 2 * number, first, middle);
    add(block, 2 * number + 1, middle + 1, last);
  }

  void collect(const Lifetime& block, size_t number, int first, int last) {
    if (block.last_op < first || last < block.first_op) return;
    const Node& node = nodes_[number];
    if (block.first_op <= first && last <= block.last_op) {
      others_.push_back(&node.within);
      return;
    }
    others_.push_back(&node.through);
    const int middle = first + (last - first) / 2;
    collect(block, 2 * number, first, middle);
    collect(block, 2 * number + 1, middle + 1, last);
  }

  const int ops_;
  std::vector<Node> nodes_;  // from 1: the children of i are 2i and 2i + 1
  std::vector<const Intervals*> others_;
};

}  // namespace

size_t place_by_lifetime(std::vector<Lifetime>& blocks) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return blocks[a].bytes > blocks[b].bytes;
  });
  int ops = 1;
  for (const Lifetime& block : blocks) {
    LOCKSTEP_CHECK(0 <= block.first_op && block.first_op <= block.last_op);
    ops = std::max(ops, block.last_op + 1);
  }
  TakenByTime taken(ops);
  size_t arena = 0;
  for (size_t index : order) {
    Lifetime& block = blocks[index];
    block.offset = 0;
    if (block.bytes == 0) continue;
    block.offset = taken.lowest(block);
    taken.add(block);
    arena = std::max(arena, block.offset + block.bytes);
  }
  return arena;
}

}  // namespace lockstep::plan
