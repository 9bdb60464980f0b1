#include "runtime/cuda/cudnn_conv2d.h"

#include <map>

#include "runtime/base/error.h"
#include "runtime/cuda/cudnn_library.h"

namespace lockstep::cuda {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// Names of the arrays within a graph.
enum Uid : int64_t { kX = 1, kW, kY, kBias };

// Makes the graph of one pass. cuDNN numbers dimensions as (N, C, H, W); that channels come last in
// memory is said by the strides.
class PassBuilder {
 public:
  PassBuilder(const CudnnConv2dKey& key, int sm) : key_(key) {
    graph_->set_sm_version(sm);
    graph_->set_io_data_type(cudnn_type(key.dtype))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  std::shared_ptr<fe::graph::Graph> build() {
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
  std::vector<int64_t> dimensions(Uid uid) const {
    const Conv2dShape& s = key_.shape;
    switch (uid) {
      case kX: return {s.batch, s.channels, s.height, s.width};
      case kW: return {s.outputs, s.group_channels(), s.kernel_h, s.kernel_w};
      case kY: return {s.batch, s.outputs, s.out_height(), s.out_width()};
      case kBias: return {1, s.outputs, 1, 1};
    }
    LOCKSTEP_CHECK(false);
  }
  std::vector<int64_t> strides(Uid uid) const {
    const std::vector<int64_t> d = dimensions(uid);
    return {d[1] * d[2] * d[3], 1, d[3] * d[1], d[1]};
  }
  Tensor tensor(Uid uid) {
    return graph_->tensor(fe::graph::Tensor_attributes()
                              .set_uid(uid)
                              .set_dim(dimensions(uid))
                              .set_stride(strides(uid)));
  }
  Tensor output(const Tensor& tensor, Uid uid) const {
    tensor->set_output(true).set_uid(uid).set_dim(dimensions(uid)).set_stride(strides(uid));
    return tensor;
  }
  template <typename Attributes>
  Attributes window() const {
    const Conv2dShape& s = key_.shape;
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

  // No engine for the gradient of 16-bit images stores floats by itself; those that something else
  // can follow do, and with a product they are more than with a mere copy.
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
  std::shared_ptr<fe::graph::Graph> graph_ = std::make_shared<fe::graph::Graph>();
};

// Rules out what gives other bits from run to run, and what is less exact than a sum of products in
// float.
void choose_engines(const CudnnConv2dKey& key, fe::graph::Graph& graph) {
  std::vector<fe::NumericalNote_t> barred = {fe::NumericalNote_t::NONDETERMINISTIC,
                                             fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION,
                                             fe::NumericalNote_t::FFT,
                                             fe::NumericalNote_t::WINOGRAD,
                                             fe::NumericalNote_t::WINOGRAD_TILE_4x4,
                                             fe::NumericalNote_t::WINOGRAD_TILE_6x6,
                                             fe::NumericalNote_t::WINOGRAD_TILE_13x13};
  if (key.dtype == DType::kF32 && !key.tf32) {
    barred.push_back(fe::NumericalNote_t::TENSOR_CORE);
    barred.push_back(fe::NumericalNote_t::DOWN_CONVERT_INPUTS);
  }
  graph.deselect_numeric_notes(barred);
}

}  // namespace

struct CudnnConv2d::Library {
  explicit Library(Stream stream) : graphs(stream) {}
  const CudnnGraphs<CudnnConv2dKey>::Planned& plan(const CudnnConv2dKey& key) {
    return graphs.plan(
        key,
        static_cast<int64_t>(cudnn_conv2d_workspace_bytes(key)),
        [&](int sm) { return PassBuilder(key, sm).build(); },
        [&](fe::graph::Graph& graph) { choose_engines(key, graph); });
  }
  CudnnGraphs<CudnnConv2dKey> graphs;
};

CudnnConv2d::CudnnConv2d(Stream stream) {
  try {
    library_ = std::make_unique<Library>(stream);
  } catch (const std::exception& error) {
    why_not_ = error.what();
  }
}

CudnnConv2d::~CudnnConv2d() = default;

bool CudnnConv2d::supports(const CudnnConv2dKey& key) {
  if (!library_) return false;
  const auto& planned = library_->plan(key);
  if (!planned.refusal.empty()) why_not_ = planned.refusal;
  return planned.refusal.empty();
}

void CudnnConv2d::run(const CudnnConv2dKey& key, const CudnnConv2dArrays& arrays, void* workspace) {
  std::unordered_map<int64_t, void*> pack = {{kX, const_cast<void*>(arrays.x)},
                                             {kW, const_cast<void*>(arrays.w)},
                                             {kY, const_cast<void*>(arrays.y)}};
  if (key.bias) pack[kBias] = const_cast<void*>(arrays.bias);
  fe::error_t status =
      library_->plan(key).graph->execute(library_->graphs.handle(), pack, workspace);
  if (status.is_bad())
    throw Error(ExitCode::kInternal, "cuDNN's convolution failed: " + status.get_message());
}

std::string cudnn_conv2d_refusal(const CudnnConv2dKey& key,
                                 int sm,
                                 const std::string& device_json) {
  try {
    load_cudnn();
    const std::shared_ptr<fe::graph::Graph> graph = PassBuilder(key, sm).build();
    return refusal_on_described_gpu(*graph,
                                    device_json,
                                    static_cast<int64_t>(cudnn_conv2d_workspace_bytes(key)),
                                    [&](fe::graph::Graph& made) { choose_engines(key, made); });
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace lockstep::cuda
