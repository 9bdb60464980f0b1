#pragma once
// The graph of a convolution. Only cudnn_graphs.cc includes this.

#include <vector>

#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/cudnn/cudnn_frontend_graph.h"

namespace lockstep::cuda {

// Ids of the arrays in a graph of a convolution.
enum Conv2dUid : int64_t { kX = 1, kW, kY, kBias };

// Builds the graph of one pass. cuDNN orders dimensions as (N, C, H, W); the strides express that
// channels are innermost in memory.
class Conv2dBuilder {
 public:
  Conv2dBuilder(const CudnnConv2dKey& key, int sm) : key_(key), graph_(new_graph(key.dtype, sm)) {}

  Graph build() {
    switch (key_.pass) {
      case Conv2dPass::kForward: forward(); break;
      case Conv2dPass::kBackwardInput:
        output(
            graph_->conv_dgrad(tensor(kY), tensor(kW), window<fe::graph::Conv_dgrad_attributes>()),
            kX);
        break;
      case Conv2dPass::kBackwardWeight: backward_weight(); break;
    }
    return graph_;
  }

 private:
  // (N, C, H, W).
  std::vector<int64_t> dimensions(Conv2dUid uid) const {
    const graph::Conv2dShape& s = key_.shape;
    switch (uid) {
      case kX: return {s.batch, s.channels, s.height, s.width};
      case kW: return {s.outputs, s.group_channels(), s.kernel_h, s.kernel_w};
      case kY: return {s.batch, s.outputs, s.out_height(), s.out_width()};
      case kBias: return {1, s.outputs, 1, 1};
    }
    LOCKSTEP_CHECK(false);
  }
  std::vector<int64_t> strides(Conv2dUid uid) const {
    const std::vector<int64_t> d = dimensions(uid);
    return {d[1] * d[2] * d[3], 1, d[3] * d[1], d[1]};
  }
  Tensor tensor(Conv2dUid uid) {
    return graph_->tensor(fe::graph::Tensor_attributes()
                              .set_uid(uid)
                              .set_dim(dimensions(uid))
                              .set_stride(strides(uid)));
  }
  Tensor output(const Tensor& tensor, Conv2dUid uid) const {
    tensor->set_output(true).set_uid(uid).set_dim(dimensions(uid)).set_stride(strides(uid));
    return tensor;
  }
  template <typename Attributes>
  Attributes window() const {
    const graph::Conv2dShape& s = key_.shape;
    Attributes attributes;
    attributes.set_padding({s.pad_h, s.pad_w})
        .set_stride({s.stride_h, s.stride_w})
        .set_dilation({s.dilation_h, s.dilation_w});
    return attributes;
  }

  void forward() {
    Tensor y =
        graph_->conv_fprop(tensor(kX), tensor(kW), window<fe::graph::Conv_fprop_attributes>());
    if (key_.bias)
      y = graph_->pointwise(
          y, tensor(kBias), fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
    if (key_.relu)
      y = graph_->pointwise(
          y, fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::RELU_FWD));
    output(y, kY);
  }

  // For 16-bit images, no engine stores the gradient as floats by itself. Engines that can be fused
  // with another operation do, and more of them support a multiplication than a plain copy. So the
  // gradient is multiplied by one.
  void backward_weight() {
    const Tensor d_w =
        graph_->conv_wgrad(tensor(kY), tensor(kX), window<fe::graph::Conv_wgrad_attributes>());
    if (!key_.wide) {
      output(d_w, kW);
      return;
    }
    d_w->set_dim(dimensions(kW)).set_stride(strides(kW)).set_data_type(fe::DataType_t::FLOAT);
    const Tensor times_one =
        graph_->pointwise(d_w,
                          graph_->tensor(1.0f),
                          fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::MUL));
    output(times_one, kW)->set_data_type(fe::DataType_t::FLOAT);
  }

  const CudnnConv2dKey key_;
  const Graph graph_;
};

// Excludes engines whose bits differ from run to run, and engines that are less exact than a sum of
// products in float.
inline void choose_engines(const CudnnConv2dKey& key, fe::graph::Graph& graph) {
  std::vector<fe::NumericalNote_t> excluded = {fe::NumericalNote_t::NONDETERMINISTIC,
                                               fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION,
                                               fe::NumericalNote_t::FFT,
                                               fe::NumericalNote_t::WINOGRAD,
                                               fe::NumericalNote_t::WINOGRAD_TILE_4x4,
                                               fe::NumericalNote_t::WINOGRAD_TILE_6x6,
                                               fe::NumericalNote_t::WINOGRAD_TILE_13x13};
  if (key.dtype == DType::kF32 && !key.tf32) {
    excluded.push_back(fe::NumericalNote_t::TENSOR_CORE);
    excluded.push_back(fe::NumericalNote_t::DOWN_CONVERT_INPUTS);
  }
  graph.deselect_numeric_notes(excluded);
}

inline Graph make_graph(const CudnnConv2dKey& key, int sm) {
  return Conv2dBuilder(key, sm).build();
}

inline int64_t max_workspace_bytes(const CudnnConv2dKey& key) {
  return static_cast<int64_t>(cudnn_conv2d_workspace_bytes(key));
}

inline const char* name_of_pass(const CudnnConv2dKey&) { return "convolution"; }

inline Pack pack_arrays(const CudnnConv2dKey& key, const CudnnConv2dArrays& arrays) {
  Pack pack = {{kX, const_cast<void*>(arrays.x)},
               {kW, const_cast<void*>(arrays.w)},
               {kY, const_cast<void*>(arrays.y)}};
  if (key.bias) pack[kBias] = const_cast<void*>(arrays.bias);
  return pack;
}

}  // namespace lockstep::cuda
