#pragma once
// A device's own record of how far it is in the operations between ranks.

#include <cstdint>

#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// Queues one more count in `count`, in device memory, and the write of the word of a DevicePoint
// (runtime/base/flight_recorder.h) with that count and `label` to `word`, in pinned memory.
void mark_operation(uint64_t* count, uint64_t* word, uint64_t label, Stream stream);

}  // namespace lockstep::cuda
