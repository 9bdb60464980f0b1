#pragma once
// What a rank waits for, and how long.

#include <cstddef>
#include <cstdint>

#include "collectives/communicator.h"
#include "collectives/exchange_observer.h"
#include "collectives/shm/node_memory.h"
#include "runtime/base/flight_recorder.h"
#include "runtime/base/time.h"

namespace lockstep {

// An operation of the communicator or, in shared memory, an event.
struct Arrival {
  int handle = -1;  // none: the event
  NodeMemory::Event event = NodeMemory::Event::kGradients;
  uint32_t count = 0;
  size_t bytes = 0;  // of memory that the event is about
};

class TimedWaits {
 public:
  TimedWaits(Communicator& communicator, NodeMemory* node)
      : communicator_(communicator), node_(node) {}

  // This rank has got to an event, about so many bytes: what to wait for the others with.
  Arrival signal(NodeMemory::Event event, size_t bytes) {
    return {-1, event, node_->signal(event), bytes};
  }
  // `what` and `bucket`, -1 for none, are for the observer. Returns when it ended.
  double wait(const Arrival& arrival, ExchangeObserver::Wait what, int bucket) {
    return timed(what, bucket, [&] {
      if (arrival.handle >= 0) {
        communicator_.wait(arrival.handle);
      } else {
        node_->wait(arrival.event, arrival.count, arrival.bytes);
      }
    });
  }
  // Whatever else waits for other ranks.
  template <typename F>
  double timed(ExchangeObserver::Wait what, int bucket, F wait) {
    const double start_ms = now_ms();
    FlightRecorder::here().about_bucket(bucket);
    wait();
    FlightRecorder::here().about_bucket(-1);
    const double end_ms = now_ms();
    ms_ += end_ms - start_ms;
    if (observer_ != nullptr) observer_->waited(what, bucket, start_ms, end_ms);
    return end_ms;
  }

  // Reports to it, borrowed, from now on; null: to none.
  void observe(ExchangeObserver* observer) { observer_ = observer; }
  ExchangeObserver* observer() const { return observer_; }

  // Milliseconds that the host has waited since clear().
  double ms() const { return ms_; }
  void clear() { ms_ = 0; }

 private:
  Communicator& communicator_;
  NodeMemory* node_;
  ExchangeObserver* observer_ = nullptr;
  double ms_ = 0;
};

}  // namespace lockstep
