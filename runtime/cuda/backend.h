#pragma once
// Training on one GPU.

#include <memory>

#include "runtime/cuda/stream.h"
#include "runtime/exec/backend.h"

namespace lockstep::cuda {

struct BackendOptions {
  int device = 0;               // ordinal among the visible GPUs
  int capability = 0;           // compute capability: 90 for 9.0
  int multiprocessors = 1;      // that the GPU has
  DType compute = DType::kF32;  // of the run's parameters as the ops read them
  bool tf32 = false;            // float products are rounded to TF32
  bool record_graphs = true;    // false: repeated work is queued again each time, for debugging
  double peak_flops = 0;        // 0: unknown
};

// The backend for one NVIDIA GPU. Everything is queued on one stream, in the order of the calls.
// Repeated work runs directly the first time and is then recorded as a CUDA graph.
class CudaBackend : public exec::Backend {
 public:
  virtual Stream stream() = 0;
  // Sets a function that synchronize() calls repeatedly while it waits; the function may throw.
  virtual void watch(std::function<void()> check) = 0;
  // Runs `work` at once. While repeated work is being recorded, `work` becomes a part of it that
  // runs between two graphs at every replay.
  virtual void outside_graphs(std::function<void()> work) = 0;
  // The CUDA graphs of repeated work that exist. NCCL's communicator must outlive them.
  virtual size_t graphs() const = 0;
};

// Creates the backend of a GPU. Throws MemoryError if memory runs out, and Error if CUDA fails.
std::unique_ptr<CudaBackend> make_backend(const BackendOptions& options);

}  // namespace lockstep::cuda
