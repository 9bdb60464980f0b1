#pragma once
// Waits for other ranks, with the time that they take.

#include <cstddef>
#include <cstdint>

#include "collectives/communicator.h"
#include "collectives/exchange/exchange_observer.h"
#include "collectives/shm/node_memory.h"
#include "runtime/base/flight_recorder.h"
#include "runtime/base/time.h"

namespace lockstep::collectives {

// What is waited for: an operation of the communicator or an event in shared memory.
struct Arrival {
  int handle = -1;  // -1: the event is waited for
  NodeMemory::Event event = NodeMemory::Event::kGradients;
  uint32_t count = 0;
  size_t bytes = 0;  // of memory that the event announces
};

class TimedWaits {
 public:
  TimedWaits(Communicator& communicator, NodeMemory* node)
      : communicator_(communicator), node_(node) {}

  // Signals that this rank has reached the event, for `bytes` bytes. Returns what to wait for until
  // the other ranks have reached it too.
  Arrival signal(NodeMemory::Event event, size_t bytes) {
    return {-1, event, node_->signal(event), bytes};
  }
  // Waits; `what` and `bucket` (-1: none) are reported to the observer. Returns the end time in
  // now_ms().
  double wait(const Arrival& arrival, ExchangeObserver::Wait what, int bucket) {
    return timed(what, bucket, [&] {
      if (arrival.handle >= 0) {
        communicator_.wait(arrival.handle);
      } else {
        node_->wait(arrival.event, arrival.count, arrival.bytes);
      }
    });
  }
  // Runs `wait`, which waits for other ranks in any other way, and measures it as wait() does.
  template <typename F>
  double timed(ExchangeObserver::Wait what, int bucket, F wait) {
    const double start_ms = now_ms();
    FlightRecorder::here().set_bucket(bucket);
    wait();
    FlightRecorder::here().set_bucket(-1);
    const double end_ms = now_ms();
    ms_ += end_ms - start_ms;
    if (observer_ != nullptr) observer_->waited(what, bucket, start_ms, end_ms);
    return end_ms;
  }

  // Sets the observer, borrowed; null removes it.
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

}  // namespace lockstep::collectives
