#pragma once
// cuDNN's answers about a GPU that is only described and need not be present. Tests ask; a run asks
// CudnnAttention and CudnnConv2d, which take the same steps on the GPU that is there.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::cuda {

struct CudnnAttentionKey;
struct CudnnConv2dKey;

struct DescribedGpu {
  int sm;            // 80, 90, ...
  std::string json;  // the GPU's properties, as cuDNN writes them
};

struct CudnnQuestion {
  // Whether the plan is built: takes a driver that loads kernels, or a stub of one
  // (tests/cuda/driver_for_cudnn.cc). Otherwise cuDNN only names an engine.
  bool build = false;
  // Whether engines may take any workspace; otherwise only what is planned.
  bool any_workspace = false;
  std::string engine = {};  // of `offers`: builds this one; empty: the first that is allowed
};

struct CudnnAnswer {
  std::string refusal = {};  // empty if cuDNN supports the pass
  // The engines that its heuristic lists, also those that are not allowed.
  std::vector<std::string> offers = {};
  // Of a plan that was built:
  int64_t workspace_bytes = 0;
  std::string engine = {};  // as cuDNN writes it, such as "eng6_k24=26"
};

CudnnAnswer cudnn_answer(const CudnnAttentionKey& key,
                         const DescribedGpu& gpu,
                         const CudnnQuestion& question = {});
CudnnAnswer cudnn_answer(const CudnnConv2dKey& key,
                         const DescribedGpu& gpu,
                         const CudnnQuestion& question = {});

}  // namespace lockstep::cuda
