#pragma once
// The listener to exchanges between ranks: the timeline, and the split of lost time.

#include <cstddef>

namespace lockstep {

// What reducers and all-gathers report of their work. Times are readings of
// now_ms() by the host: an exchange or a gather begins when this rank starts its part in it and
// ends when the rank takes what has come, which is later than it came where nothing had to be
// waited for.
class ExchangeObserver {
 public:
  enum class Wait { kExchange, kGather, kLanes, kTotals, kNorms, kDirections };

  virtual ~ExchangeObserver() = default;
  // Of `bytes` of a bucket's gradients, on one level of the topology.
  virtual void exchanged(
      int bucket, size_t bytes, size_t level, double start_ms, double end_ms) = 0;
  // Of all parts of a bucket that the ranks own: parameters or, where the optimizer is not sharded,
  // sums.
  virtual void gathered(int bucket, size_t bytes, double start_ms, double end_ms) = 0;
  // The rank stood still. `bucket` is -1 where it waited for none. All waits of a step add up to
  // what those who waited say.
  virtual void waited(Wait what, int bucket, double start_ms, double end_ms) = 0;
};

}  // namespace lockstep
