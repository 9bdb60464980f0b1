#pragma once
// The word in which a GPU reports the operation between ranks that it has reached: see DevicePoint
// in runtime/base/flight_recorder.h. Also while a CUDA graph runs, of which the host sees nothing.

#include <atomic>
#include <cstdint>

#include "runtime/cuda/flat/operation_mark.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// Must outlive the work that it queues, and graphs that captured it.
class OperationMarks {
 public:
  explicit OperationMarks(Stream stream) {
    device_.reserve(256, stream);  // one piece
    count_ = reinterpret_cast<uint64_t*>(device_.take(sizeof(uint64_t), "a count"));
    word_ = reinterpret_cast<uint64_t*>(pinned_.allocate(sizeof(uint64_t), "a count"));
  }

  // Queues that the operation with this label begins or, the next time, that it has ended.
  void mark(Stream stream, uint64_t label) const { mark_operation(count_, word_, label, stream); }
  // What other threads read. The GPU writes the 64 bits at once.
  const std::atomic<uint64_t>* word() const {
    static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));
    return reinterpret_cast<const std::atomic<uint64_t>*>(word_);
  }

 private:
  DeviceArena device_;
  PinnedMemory pinned_;
  uint64_t *count_ = nullptr, *word_ = nullptr;
};

}  // namespace lockstep::cuda
