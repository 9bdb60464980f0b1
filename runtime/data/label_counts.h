#pragma once
// How many samples have each class label.

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::data {

// Its memory grows with the number of different labels, not with the largest one. Labels are 0 or
// more.
class LabelCounts {
 public:
  void add(int32_t label, int64_t count = 1);

  bool empty() const { return total_ == 0; }
  int64_t total() const { return total_; }
  int64_t of(int32_t label) const;
  int64_t largest() const;  // label; -1 if there is none
  // The labels that occur, ascending, with their numbers of samples.
  std::vector<std::pair<int32_t, int64_t>> sorted() const;

 private:
  static constexpr int32_t kSmall = 1 << 16;  // labels below it have an element of small_

  std::vector<int64_t> small_;
  std::unordered_map<int32_t, int64_t> large_;
  int64_t total_ = 0;
};

}  // namespace lockstep::data
