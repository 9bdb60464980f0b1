#include "runtime/cuda/algorithm_requests.h"

#include "runtime/cuda/algorithm_choices.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/matmul/matmul.h"

namespace lockstep::cuda {
namespace {

// A field that is added belongs into the text, too, but for those about lanes: an algorithm is
// chosen for a whole pass, and given to the products of its lanes.
static_assert(sizeof(Product) == 112 && sizeof(CudnnConv2dKey) == 120);

std::string_view word_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone: return "none";
    case Epilogue::kBias: return "bias";
    case Epilogue::kBiasRelu: return "bias_relu";
    case Epilogue::kBiasGelu: return "bias_gelu";
    case Epilogue::kBiasGeluSaved: return "bias_gelu_saved";
    case Epilogue::kGeluGradient: return "gelu_gradient";
    case Epilogue::kBiasGradient: return "bias_gradient";
  }
  return "";
}

std::string_view word_of(Conv2dPass pass) {
  switch (pass) {
    case Conv2dPass::kForward: return "forward";
    case Conv2dPass::kBackwardInput: return "backward_input";
    case Conv2dPass::kBackwardWeight: return "backward_weight";
  }
  return "";
}

}  // namespace

std::string request_of(const Product& p) {
  RequestText text("product");
  text.add("m", p.m).add("n", p.n).add("k", p.k);
  text.add("stride_a", p.stride_a).add("stride_b", p.stride_b).add("stride_out", p.stride_out);
  text.add("batch", p.batch, 1);
  text.add("batch_a", p.batch_a).add("batch_b", p.batch_b).add("batch_out", p.batch_out);
  text.add("transpose_a", p.transpose_a ? 1 : 0).add("transpose_b", p.transpose_b ? 1 : 0);
  text.add("in", name_of(p.in)).add("out", name_of(p.out));
  text.add("accumulate", p.accumulate ? 1 : 0).add("tf32", p.tf32 ? 1 : 0);
  if (p.epilogue != Epilogue::kNone) text.add("epilogue", word_of(p.epilogue));
  return text.text();
}

std::string request_of(const CudnnConv2dKey& key) {
  const graph::Conv2dShape& s = key.shape;
  RequestText text("convolution");
  text.add("pass", word_of(key.pass)).add("batch", s.batch);
  text.add("height", s.height).add("width", s.width);
  text.add("channels", s.channels).add("outputs", s.outputs);
  text.add("kernel_h", s.kernel_h).add("kernel_w", s.kernel_w);
  text.add("stride_h", s.stride_h, 1).add("stride_w", s.stride_w, 1);
  text.add("pad_h", s.pad_h).add("pad_w", s.pad_w);
  text.add("dilation_h", s.dilation_h, 1).add("dilation_w", s.dilation_w, 1);
  text.add("groups", s.groups, 1);
  text.add("in", name_of(key.dtype)).add("tf32", key.tf32 ? 1 : 0);
  text.add("bias", key.bias ? 1 : 0).add("relu", key.relu ? 1 : 0).add("wide", key.wide ? 1 : 0);
  return text.text();
}

}  // namespace lockstep::cuda
