#pragma once
// The graphs of cuDNN that attention and convolutions run on. cudnn-frontend, which builds them, is
// headers alone and takes long to compile: cudnn_graphs.cc is the one file that includes it. cuDNN
// is found when it is first used, so that the program runs without.

#include <memory>
#include <string>

#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// Graphs that are built once for each key, kept by the process, and run on one stream of the
// current GPU. Of one thread.
template <typename Key, typename Arrays>
class CudnnGraphs {
 public:
  // Throws std::runtime_error where cuDNN is not to be found or cannot use the GPU.
  explicit CudnnGraphs(Stream stream);
  ~CudnnGraphs();

  // Why the key's graph cannot run on this GPU within the workspace that is set aside for it; empty
  // if it can. Builds its plan if that has not been tried before.
  const std::string& refusal(const Key& key);
  // Queues a graph that is not refused.
  void run(const Key& key, const Arrays& arrays, void* workspace);

  // The same question about a GPU that is described in JSON and need not be there. `sm` is 80, ...
  static std::string refusal_on_described_gpu(const Key& key,
                                              int sm,
                                              const std::string& device_json);

 private:
  struct State;

  std::unique_ptr<State> state_;
};

using CudnnAttentionGraphs = CudnnGraphs<CudnnAttentionKey, CudnnAttentionArrays>;
using CudnnConv2dGraphs = CudnnGraphs<CudnnConv2dKey, CudnnConv2dArrays>;
extern template class CudnnGraphs<CudnnAttentionKey, CudnnAttentionArrays>;
extern template class CudnnGraphs<CudnnConv2dKey, CudnnConv2dArrays>;

}  // namespace lockstep::cuda
