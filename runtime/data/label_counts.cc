#include "runtime/data/label_counts.h"

#include <algorithm>

namespace lockstep::data {

void LabelCounts::add(int32_t label, int64_t count) {
  total_ += count;
  if (label >= kSmall) {
    large_[label] += count;
    return;
  }
  const auto index = static_cast<size_t>(label);
  if (index >= small_.size()) small_.resize(index + 1);
  small_[index] += count;
}

int64_t LabelCounts::of(int32_t label) const {
  if (label < kSmall) {
    const auto index = static_cast<size_t>(label);
    return index < small_.size() ? small_[index] : 0;
  }
  const auto found = large_.find(label);
  return found == large_.end() ? 0 : found->second;
}

int64_t LabelCounts::largest() const {
  int64_t largest = static_cast<int64_t>(small_.size()) - 1;
  for (const auto& [label, count] : large_) largest = std::max<int64_t>(largest, label);
  return largest;
}

std::vector<std::pair<int32_t, int64_t>> LabelCounts::sorted() const {
  std::vector<std::pair<int32_t, int64_t>> counts;
  for (size_t label = 0; label < small_.size(); ++label)
    if (small_[label] > 0) counts.emplace_back(static_cast<int32_t>(label), small_[label]);
  const size_t small = counts.size();
  counts.insert(counts.end(), large_.begin(), large_.end());
  std::sort(counts.begin() + static_cast<std::ptrdiff_t>(small), counts.end());
  return counts;
}

}  // namespace lockstep::data
