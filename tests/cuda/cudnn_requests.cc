#include "tests/cuda/cudnn_requests.h"

#include <fmt/core.h>

#include "runtime/cuda/plan/attention.h"
#include "runtime/cuda/plan/conv2d.h"
#include "runtime/graph/op_call.h"

namespace lockstep::test {
namespace {

using cuda::Conv2dPass;
using cuda::CudnnAttentionKey;
using cuda::CudnnConv2dKey;

std::string text_of(const graph::AttentionShape& s) {
  return fmt::format("{} x {}, {} heads of {}{}, {}{}",
                     s.batch,
                     s.time,
                     s.heads,
                     s.head_size,
                     s.group() == 1 ? "" : fmt::format(" on {}", s.kv_heads),
                     s.causal ? "causal" : "full",
                     s.window > 0 ? fmt::format(", window {}", s.window) : "");
}

std::string text_of(const CudnnAttentionKey& key) {
  return text_of(key.shape) + (key.padded ? ", padded" : "");
}

std::string text_of(const graph::Conv2dShape& s) {
  std::string text = fmt::format("{} x {}x{}x{} to {}, {}x{}",
                                 s.batch,
                                 s.height,
                                 s.width,
                                 s.channels,
                                 s.outputs,
                                 s.kernel_h,
                                 s.kernel_w);
  if (s.stride_h != 1 || s.stride_w != 1) text += fmt::format(", stride {}", s.stride_h);
  if (s.dilation_h != 1 || s.dilation_w != 1) text += fmt::format(", dilation {}", s.dilation_h);
  if (s.groups != 1) text += fmt::format(", {} groups", s.groups);
  return text;
}

// As runtime/cuda/ops/attention.cu.
void add_attention(const graph::OpCall& call, CudnnRequests& requests) {
  const graph::AttentionShape shape = cuda::attention_shape(call);
  const int version = std::stoi(cuda::cudnn_version());
  std::string why = cuda::cudnn_attention_limit(call);
  if (why.empty() &&
      !cuda::fits_cudnn_workspace(shape, cuda::attention_is_padded(call), version, why))
    why = why.substr(std::string_view(cuda::kKnownLimit).size());
  if (cuda::attention_dtype(call) == DType::kF32) return;  // native, for it sums floats
  if (!why.empty())
    requests.kept.insert(text_of(shape) + ": " + why);
  else
    requests.keys.insert(cuda::cudnn_attention_key(call));
}

// As runtime/cuda/ops/conv2d.cc.
void add_conv2d_backward(const graph::OpCall& call, bool tf32, CudnnRequests& requests) {
  if (call.has_output(graph::Conv2dBackwardOut::kDX))
    requests.keys.insert(cuda::cudnn_conv2d_key(call, Conv2dPass::kBackwardInput, tf32));
  if (!call.has_output(graph::Conv2dBackwardOut::kDWeight) || graph::conv2d_shape(call).is_linear())
    return;  // none, or a product
  requests.keys.insert(cuda::cudnn_conv2d_key(call, Conv2dPass::kBackwardWeight, tf32));
  if (!graph::Conv2dBackward<std::byte>{call}.accumulate_weight)
    requests.keys.insert(cuda::cudnn_conv2d_wide_key(call, tf32));
}

}  // namespace

void add_requests(const graph::Graph& graph, bool tf32, CudnnRequests& requests) {
  for (const graph::Op& op : graph.ops) {
    const graph::OpCall call(graph, op);
    switch (op.kind) {
      case graph::OpKind::kAttention:
      case graph::OpKind::kAttentionBackward: add_attention(call, requests); break;
      case graph::OpKind::kConv2d:
        requests.keys.insert(cuda::cudnn_conv2d_epilogue_key(call, tf32));
        requests.keys.insert(cuda::cudnn_conv2d_key(call, Conv2dPass::kForward, tf32));
        break;
      case graph::OpKind::kConv2dBackward: add_conv2d_backward(call, tf32, requests); break;
      case graph::OpKind::kConvTranspose2d:
        requests.keys.insert(cuda::cudnn_conv2d_key(call, Conv2dPass::kBackwardInput, tf32));
        break;
      case graph::OpKind::kConvTranspose2dBackward:
        requests.keys.insert(cuda::cudnn_conv2d_key(call, Conv2dPass::kForward, tf32));
        requests.keys.insert(cuda::cudnn_conv2d_wide_key(call, tf32));
        break;
      default: break;
    }
  }
}

namespace {

// Calls the function for the key's kind.
template <typename Attention, typename Conv2d>
auto by_kind(const CudnnKey& key, Attention attention, Conv2d conv2d) {
  if (const auto* of_attention = std::get_if<CudnnAttentionKey>(&key))
    return attention(*of_attention);
  return conv2d(std::get<CudnnConv2dKey>(key));
}

std::string pass_of_conv2d(const CudnnConv2dKey& key) {
  switch (key.pass) {
    case Conv2dPass::kForward:
      return fmt::format("convolution{}{}", key.bias ? " + bias" : "", key.relu ? " + ReLU" : "");
    case Conv2dPass::kBackwardInput: return "its gradient of x";
    case Conv2dPass::kBackwardWeight:
      return key.wide ? "its gradient of w, stored in FP32" : "its gradient of w";
  }
  return "";
}

}  // namespace

std::string pass_of(const CudnnKey& key) {
  return by_kind(
      key,
      [](const CudnnAttentionKey& k) {
        return std::string(k.backward ? "attention, backward" : "attention");
      },
      pass_of_conv2d);
}

std::string precision_of(const CudnnKey& key) {
  const auto name = [](DType type, bool tf32) {
    return std::string(type == DType::kBF16  ? "BF16"
                       : type == DType::kF16 ? "FP16"
                       : tf32                ? "TF32"
                                             : "FP32");
  };
  return by_kind(
      key,
      [&](const CudnnAttentionKey& k) { return name(k.dtype, false); },
      [&](const CudnnConv2dKey& k) { return name(k.dtype, k.tf32); });
}

std::string extents_of(const CudnnKey& key) {
  return by_kind(
      key,
      [](const CudnnAttentionKey& k) { return text_of(k); },
      [](const CudnnConv2dKey& k) { return text_of(k.shape); });
}

std::string instead_of(const CudnnKey& key) {
  return by_kind(
      key,
      [](const CudnnAttentionKey&) { return std::string("the native kernel, both passes"); },
      [](const CudnnConv2dKey& k) {
        if (k.bias || k.relu)
          return std::string("cuDNN without bias and ReLU, and a kernel for these");
        if (k.wide) return std::string("cuDNN in 16 bits, widened");
        return std::string("the native kernel");
      });
}

size_t planned_bytes(const CudnnKey& key) {
  return by_kind(key, cuda::cudnn_attention_workspace_bytes, cuda::cudnn_conv2d_workspace_bytes);
}

cuda::CudnnAnswer answer_of(const CudnnKey& key,
                            const cuda::DescribedGpu& gpu,
                            const cuda::CudnnQuestion& question) {
  return std::visit([&](const auto& k) { return cuda::cudnn_answer(k, gpu, question); }, key);
}

}  // namespace lockstep::test
