#pragma once
// What a rank waits for, and how long.

#include <cstdint>

#include "collectives/communicator.h"
#include "collectives/shm/node_memory.h"
#include "runtime/base/time.h"

namespace lockstep {

// An operation of the communicator or, in shared memory, an event.
struct Arrival {
  int handle = -1;  // none: the event
  NodeMemory::Event event = NodeMemory::Event::kGradients;
  uint32_t count = 0;
};

class Waits {
 public:
  Waits(Communicator& communicator, NodeMemory* node) : communicator_(communicator), node_(node) {}

  // This rank has got to an event: what to wait for the others with.
  Arrival signal(NodeMemory::Event event) { return {-1, event, node_->signal(event)}; }
  void wait(const Arrival& arrival) {
    timed([&] {
      if (arrival.handle >= 0) {
        communicator_.wait(arrival.handle);
      } else {
        node_->wait(arrival.event, arrival.count);
      }
    });
  }
  // Whatever else waits for other ranks.
  template <typename F>
  void timed(F wait) {
    const double start = now_ms();
    wait();
    ms_ += now_ms() - start;
  }

  // Milliseconds that the host has waited since clear().
  double ms() const { return ms_; }
  void clear() { ms_ = 0; }

 private:
  Communicator& communicator_;
  NodeMemory* node_;
  double ms_ = 0;
};

}  // namespace lockstep
