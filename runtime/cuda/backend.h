#pragma once
// Training on one GPU.

#include <memory>

#include "runtime/cuda/stream.h"
#include "runtime/exec/backend.h"

namespace lockstep::cuda {

struct BackendOptions {
  int device = 0;             // ordinal among the visible GPUs
  bool tf32 = false;          // products of floats round to TF32
  bool record_graphs = true;  // false: repeated work is queued anew each time, for debugging
  double peak_flops = 0;      // 0: unknown
};

// The backend that computes on one NVIDIA GPU: everything is queued on one stream, in the order of
// the calls. Repeated work runs as it is the first time and is then recorded as a CUDA graph.
class CudaBackend : public Backend {
 public:
  virtual Stream stream() = 0;
  // Called again and again by whoever waits in synchronize(); it may throw.
  virtual void watch(std::function<void()> check) = 0;
  // Runs `work` at once; within repeated work that is being recorded, between two graphs each time
  // that it is replayed.
  virtual void outside_graphs(std::function<void()> work) = 0;
};

// Throws MemoryError, Error.
std::unique_ptr<CudaBackend> make_backend(const BackendOptions& options);

}  // namespace lockstep::cuda
