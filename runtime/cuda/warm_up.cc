#include "runtime/cuda/warm_up.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <set>

#include "runtime/cuda/check.h"
#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/matmul/matmul.h"
#include "runtime/cuda/memory.h"

namespace lockstep::cuda {
namespace {

constexpr int64_t kSize = 64;  // rows, columns, pixels times channels
constexpr graph::AttentionShape kAttention = {1, 128, 1, kSize, true};
constexpr int64_t kArrayBytes = 128 * kSize * 3 * 2;  // the largest array: attention's input

// The types of the graph's ops of each kind.
std::map<graph::OpKind, std::set<DType>> types_by_kind(const graph::Graph& graph) {
  std::map<graph::OpKind, std::set<DType>> types;
  for (const graph::Op& op : graph.ops) {
    if (op.inputs.first() == kNoTensor) continue;
    const DType type = graph[op.inputs.first()].dtype;
    if (type == DType::kF32 || type == DType::kBF16 || type == DType::kF16)
      types[op.kind].insert(type);
  }
  return types;
}

// A 3x3 convolution of small images.
graph::Conv2dShape small_images() {
  graph::Conv2dShape shape{1, 8, 8, 16, 16, 3, 3};
  shape.pad_h = shape.pad_w = 1;
  return shape;
}

class SmallOps {
 public:
  SmallOps(bool tf32, Stream stream) : tf32_(tf32), stream_(stream) {
    const size_t workspace = std::max(Matmul::kWorkspaceBytes, max_cudnn_bytes());
    memory_.reserve(workspace + 5 * kArrayBytes, stream);
    workspace_ = memory_.take(workspace, "the workspace");
    for (std::byte*& array : arrays_) array = memory_.take(kArrayBytes, "a small array");
  }

  void product(DType type) {
    Matmul matmul(stream_, workspace_);
    for (const bool backward : {false, true}) {
      Product product{kSize, kSize, kSize};
      product.transpose_a = backward;  // as for the gradient of weights
      product.transpose_b = !backward;
      product.in = type;
      product.out = backward ? DType::kF32 : type;
      product.tf32 = tf32_ && type == DType::kF32;
      product.epilogue = backward ? Epilogue::kNone : Epilogue::kBias;
      if (matmul.supports(product))
        matmul.run(product,
                   {.a = arrays_[0], .b = arrays_[1], .out = arrays_[2], .bias = arrays_[3]});
    }
  }

  void attention(DType type) {
    CudnnAttention attention(stream_);
    if (!attention.supports(kAttention, type)) return;
    CudnnAttentionArrays arrays{.qkv = arrays_[0],
                                .out = arrays_[1],
                                .log_sum_exp = reinterpret_cast<float*>(arrays_[2]),
                                .d_out = arrays_[3],
                                .d_qkv = arrays_[4]};
    for (const bool backward : {false, true})
      attention.run({kAttention, type, backward}, arrays, workspace_);
  }

  void convolution(DType type) {
    CudnnConv2d convolution(stream_);
    for (const auto pass :
         {Conv2dPass::kForward, Conv2dPass::kBackwardInput, Conv2dPass::kBackwardWeight}) {
      const CudnnConv2dKey key = conv2d_key(type, pass);
      if (convolution.supports(key))
        convolution.run(key, {.x = arrays_[0], .w = arrays_[1], .y = arrays_[2]}, workspace_);
    }
  }

  // Records a graph, and replays it.
  void graph(Recorder& recorder) {
    const std::unique_ptr<exec::RepeatedWork> work = recorder.repeated_work();
    for (int i = 0; i < 2; ++i)
      work->run([&] { LOCKSTEP_CUDA(cudaMemsetAsync(arrays_[0], 0, kArrayBytes, stream_)); });
    LOCKSTEP_CUDA(cudaStreamSynchronize(stream_));  // before the graph is destroyed
  }

 private:
  CudnnConv2dKey conv2d_key(DType type, Conv2dPass pass) const {
    return {small_images(), type, tf32_ && type == DType::kF32, pass};
  }
  size_t max_cudnn_bytes() const {
    size_t bytes = 0;
    for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const auto pass :
           {Conv2dPass::kForward, Conv2dPass::kBackwardInput, Conv2dPass::kBackwardWeight})
        bytes = std::max(bytes, cudnn_conv2d_workspace_bytes(conv2d_key(type, pass)));
      if (type == DType::kF32) continue;
      for (const bool backward : {false, true})
        bytes = std::max(bytes, cudnn_attention_workspace_bytes({kAttention, type, backward}));
    }
    return bytes;
  }

  bool tf32_;
  Stream stream_;
  DeviceArena memory_;
  std::byte* workspace_ = nullptr;
  std::byte* arrays_[5] = {};
};

}  // namespace

void warm_up(const graph::Graph& graph, bool tf32, Recorder* recorder, Stream stream) {
  const auto types = types_by_kind(graph);
  SmallOps small(tf32, stream);
  const auto for_types = [&](graph::OpKind kind, auto run) {
    const auto found = types.find(kind);
    if (found == types.end()) return;
    for (const DType type : found->second) run(type);
  };
  for_types(graph::OpKind::kLinear, [&](DType type) { small.product(type); });
  for_types(graph::OpKind::kAttention, [&](DType type) { small.attention(type); });
  for (const graph::OpKind kind : {graph::OpKind::kConv2d, graph::OpKind::kConv2dBatchNorm})
    for_types(kind, [&](DType type) { small.convolution(type); });
  if (recorder != nullptr) small.graph(*recorder);
  LOCKSTEP_CUDA(cudaStreamSynchronize(stream));
}

}  // namespace lockstep::cuda
