#include "runtime/cuda/flat/operation_mark.h"

#include "runtime/base/flight_recorder.h"
#include "runtime/cuda/launch.h"

namespace lockstep::cuda {
namespace {

// The count is in device memory, because a graph repeats its arguments at every replay.
__global__ void mark_operation_kernel(uint64_t* count, volatile uint64_t* word, uint64_t label) {
  *word = ++*count << DevicePoint::kLabelBits | label;
}

}  // namespace

void mark_operation(uint64_t* count, uint64_t* word, uint64_t label, Stream stream) {
  launch({1, 1, stream}, mark_operation_kernel, count, word, label);
}

}  // namespace lockstep::cuda
