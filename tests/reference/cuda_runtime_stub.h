#pragma once
// The functions of CUDA's runtime that collectives/nccl calls, for tests without a GPU: work runs
// at once, and what was asked of streams and events is written down.

#include <string>
#include <vector>

#include "collectives/nccl/library.h"

namespace lockstep::testing {

// Of the calling thread, which stands for a rank.
struct CudaStub {
  std::vector<std::string> journal;  // "record 1 on compute", "communication waits for 1"
  std::string bus_id = "0000:1B:00.0";
  cudaError_t event_state = cudaSuccess;  // of every event
  int streams = 0, events = 0;            // that exist
};
CudaStub& cuda_stub();

// What the journal calls "compute".
cudaStream_t compute_stream();

}  // namespace lockstep::testing
