#pragma once
// Who is told when exchanges between ranks begin and end: timeline, and the split of lost time.

#include <cstddef>

namespace lockstep {

// What a reducer and a gather tell of their work while somebody listens. Times are readings of
// now_ms() by the host: an exchange or a gather begins when this rank starts its part in it and
// ends when the rank takes what has come, which is later than it came where nothing had to be
// waited for.
class ExchangeObserver {
 public:
  enum class Wait { kExchange, kGather, kLanes, kTotals, kNorms };

  virtual ~ExchangeObserver() = default;
  // Of `bytes` of a bucket's gradients, on one level of the topology.
  virtual void exchanged(
      int bucket, size_t bytes, size_t level, double start_ms, double end_ms) = 0;
  // Of what the ranks own of a bucket, all parts: parameters, or in ZeRO stage 0 sums.
  virtual void gathered(int bucket, size_t bytes, double start_ms, double end_ms) = 0;
  // The rank stood still. `bucket` is -1 where it waited for none. All waits of a step add up to
  // what those who waited say.
  virtual void waited(Wait what, int bucket, double start_ms, double end_ms) = 0;
};

}  // namespace lockstep
