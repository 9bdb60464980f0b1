#pragma once
// What the runtime asks of cuDNN, op by op, and what runs instead if cuDNN refuses.

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/cudnn/cudnn_described_gpu.h"
#include "runtime/graph/graph.h"

namespace lockstep::test {

using CudnnKey = std::variant<cuda::CudnnAttentionKey, cuda::CudnnConv2dKey>;

struct CudnnRequests {
  std::set<CudnnKey> keys;
  std::set<std::string> kept;  // attentions that the plan keeps from cuDNN, and why
};

// Adds what the ops of `graph` ask for.
void add_requests(const graph::Graph& graph, bool tf32, CudnnRequests& requests);

// "attention", "gradient of attention", "convolution", "convolution + bias + ReLU", ...
std::string pass_of(const CudnnKey& key);
// The precision: "BF16", "FP16", "TF32" or "FP32".
std::string precision_of(const CudnnKey& key);
// The extents: "16 x 1024, 12 heads of 64, causal".
std::string extents_of(const CudnnKey& key);
// What runs if cuDNN refuses.
std::string instead_of(const CudnnKey& key);

size_t planned_bytes(const CudnnKey& key);
cuda::CudnnAnswer answer_of(const CudnnKey& key,
                            const cuda::DescribedGpu& gpu,
                            const cuda::CudnnQuestion& question);

}  // namespace lockstep::test
