#pragma once
// The cuDNN graphs of attention and convolutions. cudnn-frontend, which builds them, is header-only
// and slow to compile, so only cudnn_graphs.cc includes it. cuDNN is loaded at first use, so that
// the program runs without it.

#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// Graphs that are built once for each key, kept for the life of the process, and run on one stream
// of the current GPU. Not thread-safe.
template <typename Key, typename Arrays>
class CudnnGraphs {
 public:
  // Throws std::runtime_error if cuDNN is not found or cannot use the GPU.
  explicit CudnnGraphs(Stream stream);
  ~CudnnGraphs();

  // Compute capability of the GPU: 90 for 9.0.
  int sm() const;
  // Returns why the key's graph cannot run on this GPU within its planned workspace; empty if it
  // can. Builds its plan if that has not been tried before.
  const std::string& refusal(const Key& key);
  // Queues a graph that is not refused.
  void run(const Key& key, const Arrays& arrays, void* workspace);

  // The engines that cuDNN's heuristic offers for the key's graph, as cuDNN writes them, such as
  // "eng6_k24=26", its favourite first; use() refuses those that are not allowed. None if the graph
  // cannot run; then `why_not` has the reason.
  std::vector<std::string> offers(const Key& key, std::string& why_not);
  // Builds the plan of this engine, which this object runs for the key from here on. Returns why it
  // cannot be used, or an empty string.
  std::string use(const Key& key, const std::string& engine);

 private:
  struct State;

  std::unique_ptr<State> state_;
};

using CudnnAttentionGraphs = CudnnGraphs<CudnnAttentionKey, CudnnAttentionArrays>;
using CudnnConv2dGraphs = CudnnGraphs<CudnnConv2dKey, CudnnConv2dArrays>;
extern template class CudnnGraphs<CudnnAttentionKey, CudnnAttentionArrays>;
extern template class CudnnGraphs<CudnnConv2dKey, CudnnConv2dArrays>;

}  // namespace lockstep::cuda
