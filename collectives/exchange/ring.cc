#include "collectives/exchange/ring.h"

#include "runtime/base/error.h"

namespace lockstep::collectives {

std::optional<int64_t> Ring::take(int64_t n) {
  LOCKSTEP_CHECK(n > 0 && n <= length_);
  if (count_ == begins_.size()) return std::nullopt;
  int64_t begin = count_ == 0 ? 0 : next_;
  if (count_ > 0) {
    const int64_t oldest = begins_[first_];
    const bool around = next_ <= oldest;  // the newest part has wrapped around, the oldest not yet
    if (!around && begin + n > length_) begin = 0;
    if ((around || begin == 0) && begin + n > oldest) return std::nullopt;
  }
  begins_[(first_ + count_++) % begins_.size()] = begin;
  next_ = begin + n;
  return begin;
}

void Ring::give_back() {
  LOCKSTEP_CHECK(count_ > 0);
  first_ = (first_ + 1) % begins_.size();
  --count_;
}

}  // namespace lockstep::collectives
