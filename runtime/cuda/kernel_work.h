#pragma once
// What the GPU's kernels of an op do, counted without a GPU.

#include <cstdint>

#include "runtime/graph/graph.h"

namespace lockstep::cuda {

struct KernelWork {
  int64_t launches = 0;
  // Read and written, whether or not a cache holds it: an array that is read by two kernels counts
  // twice.
  double bytes = 0;
  // Operations of products, a multiplication and an addition each: on tensor cores, and on FP32
  // multiply-adds.
  double tensor_flops = 0, fma_flops = 0;

  KernelWork& operator+=(const KernelWork& other) {
    launches += other.launches;
    bytes += other.bytes;
    tensor_flops += other.tensor_flops;
    fma_flops += other.fma_flops;
    return *this;
  }
  KernelWork operator*(int64_t times) const;
  bool operator==(const KernelWork&) const = default;
};

// The GPU on which an op runs.
struct KernelGpu {
  int capability = 0;  // 90: compute capability 9.0
  bool tf32 = false;   // products of floats run on tensor cores
};

// The work of an op by the implementation that such a GPU chooses if cuBLASLt and cuDNN have what
// the plan expects of them. A call of a library counts as one launch.
KernelWork kernel_work(const graph::Graph& graph, const graph::Op& op, const KernelGpu& gpu);

}  // namespace lockstep::cuda
