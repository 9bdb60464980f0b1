#pragma once
// The tree that sums the lanes. Pure arithmetic, the same on every rank.
//
// The tree over n lanes is left-complete: a node over several lanes splits at the largest power of
// two below their number. So the nodes are the aligned ranges of 1, 2, 4, ... lanes, cut off at the
// last lane:
//
//   lanes     0   1   2   3   4   5   6          7 lanes
//             \0,1/   \2,3/   \4,5/   |
//               \--0..3--/      \4..6-/
//                   \-----0..6-----/
//
// A rank that has some neighbouring lanes can add them up as far as nodes of the tree lie among
// them: one sum if there are 2^k lanes from a multiple of 2^k on, else a few. The others' sums are
// added to these where they meet, so every addition is a node of the one tree.

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::collectives {

// The sum of `count` neighbouring lanes, beginning with `first`.
struct LaneSum {
  int first = 0;
  int count = 1;
  int end() const { return first + count; }
  bool operator==(const LaneSum&) const = default;
};

// Whether the tree over `lanes` lanes adds the two nodes, of which `right` begins where `left`
// ends.
bool are_joined(const LaneSum& left, const LaneSum& right, int lanes);

// A node of the tree as the sum of neighbouring terms, nodes below it.
struct JoinedTerms {
  LaneSum sum;
  int first = 0;  // of its terms, among those given
  // By term: after adding it as the last one, how many times the last two sums are added.
  std::vector<uint8_t> joins;
  int count() const { return static_cast<int>(joins.size()); }
  // Whether the terms are 2^k and join as a balanced tree, ((0 + 1) + (2 + 3)) + ...
  bool is_balanced() const;
};

// Adds nodes, each of which begins where the one before it ends, as far as the tree goes.
std::vector<JoinedTerms> join_terms(std::span<const LaneSum> terms, int lanes);

// The nodes into which neighbouring lanes can be added up: as few as possible, in order.
std::vector<LaneSum> largest_sums(const LaneSum& range, int lanes);

// Where sums are kept that arrive one batch after the other, and what is added after each batch.
//
// Sums wait until `width` of them have arrived. Then they are added in one pass, together with the
// sums before them that the tree joins to theirs. So each sum is read once, and a pass writes once.
// Sixteen lanes that arrive one by one, four wide; buffers 2 to 5 take the lanes:
//
//   lanes      0..3   4..7          8..11   12..15
//   buffers    2..5   2..5          2..5    2..5
//   pass       0..3   (0..3) 4..7   8..11   (0..7) ((8..11) 12..15)
//   into       1      0             1       0
//
// If 2^k equal batches have one sum, as here, each size of a sum has a buffer of its own: so few
// batches differ in what is done with them. Otherwise the sums take the first free buffers.
class SumSchedule {
 public:
  // Terms, in the order of their lanes, that are added in one pass.
  struct Pass {
    std::vector<LaneSum> terms;
    std::vector<int> buffers;    // of the terms
    std::vector<uint8_t> joins;  // as in JoinedTerms; of one term, which is copied: {0}
    bool balanced = false;       // JoinedTerms::is_balanced()
    LaneSum sum;
    int into = 0;  // the sum's buffer, which may be that of a term
  };
  struct Batch {
    std::vector<int> buffers;  // of the sums that arrive
    std::vector<Pass> passes;  // after that
    // Whether the same is done with the same buffers, if nothing depends on which lanes they are.
    bool is_like(const Batch& other) const;
  };
  // Each batch, some of which may be empty, begins where the one before it ends.
  SumSchedule(std::span<const std::vector<LaneSum>> batches, int lanes, int width = 2);

  const Batch& operator[](size_t batch) const { return batches_[batch]; }
  size_t size() const { return batches_.size(); }
  // What is left in the end: in buffers 0, 1, ..., unless a batch of several sums comes after
  // another one and more than one sum is left.
  const std::vector<LaneSum>& sums() const { return sums_; }
  // Buffers in use at the same time.
  int buffers() const { return buffers_; }

 private:
  std::vector<Batch> batches_;
  std::vector<LaneSum> sums_;
  int buffers_ = 1;
};

}  // namespace lockstep::collectives
