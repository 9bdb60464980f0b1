#pragma once
// The exchanges in flight: a ring of their states and of their staging memory, oldest first.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "collectives/exchange/ring.h"
#include "collectives/layout/sharding.h"

namespace lockstep::collectives {

template <typename Exchange>
class InFlight {
 public:
  // Limit of the elements in flight: exchanged_elements().
  explicit InFlight(int64_t elements) : ring_(elements, kMaxExchangesInFlight) {}

  size_t count() const { return ring_.parts(); }
  // Exchanges that were ever started; the newest one has this number.
  uint64_t started() const { return started_; }
  uint64_t completed() const { return started_ - count(); }
  // Takes staging memory for `elements`: its offset, or none if older exchanges must end first.
  std::optional<int64_t> take(int64_t elements) { return ring_.take(elements); }
  // The exchange that uses the memory of the last take().
  Exchange& start() { return at(++started_); }
  Exchange& oldest() { return at(completed() + 1); }
  void end_oldest() { ring_.give_back(); }
  void clear() { ring_.clear(); }
  // The older ones than the one that take() has made room for.
  template <typename Body>
  void for_each_older(Body body) {
    for (uint64_t number = started_ + 2 - count(); number <= started_; ++number) body(at(number));
  }

 private:
  Exchange& at(uint64_t number) { return exchanges_[number % exchanges_.size()]; }

  Ring ring_;
  std::array<Exchange, kMaxExchangesInFlight> exchanges_;
  uint64_t started_ = 0;
};

}  // namespace lockstep::collectives
