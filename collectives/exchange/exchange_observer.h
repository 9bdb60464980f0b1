#pragma once
// The observer of exchanges among ranks: for the timeline, and for the report of where time is
// lost.

#include <cstddef>

namespace lockstep::collectives {

// Reducers and all-gathers report their work to it. Times are host readings of now_ms(). An
// exchange or a gather begins when this rank starts its part. It ends when the rank takes the
// result, which may be later than its arrival if the rank did not have to wait.
class ExchangeObserver {
 public:
  enum class Wait { kExchange, kGather, kLanes, kTotals, kNorms, kDirections };

  virtual ~ExchangeObserver() = default;
  // An exchange of `bytes` of a bucket's gradients, on one level of the topology.
  virtual void exchanged(
      int bucket, size_t bytes, size_t level, double start_ms, double end_ms) = 0;
  // A gather of all parts of a bucket: parameters or, if the optimizer is not sharded, sums.
  virtual void gathered(int bucket, size_t bytes, double start_ms, double end_ms) = 0;
  // The rank has waited; `bucket` is -1 if the wait was for no bucket. The sum of these waits over
  // a step equals the waiting time that the reporting classes return.
  virtual void waited(Wait what, int bucket, double start_ms, double end_ms) = 0;
};

}  // namespace lockstep::collectives
