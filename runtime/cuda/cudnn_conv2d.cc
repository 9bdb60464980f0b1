#include "runtime/cuda/cudnn_conv2d.h"

#include <algorithm>
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
      case Conv2dPass::kBackwardWeight:
        // Float, as all gradients of parameters are.
        output(
            graph_->conv_wgrad(tensor(kY), tensor(kX), window<fe::graph::Conv_wgrad_attributes>()),
            kW)
            ->set_data_type(fe::DataType_t::FLOAT);
        break;
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

struct CudnnConv2d::Planned {
  std::shared_ptr<fe::graph::Graph> graph;
  std::string refusal;  // empty: it can run
};

struct CudnnConv2d::Library {
  explicit Library(Stream stream) : handle(stream) {}
  CudnnHandle handle;
  std::map<CudnnConv2dKey, Planned> planned;  // gone before the handle
};

CudnnConv2d::CudnnConv2d(Stream stream) : stream_(stream) {
  try {
    library_ = std::make_unique<Library>(stream);
  } catch (const std::exception& error) {
    why_not_ = error.what();
  }
}

CudnnConv2d::~CudnnConv2d() = default;

CudnnConv2d::Planned& CudnnConv2d::plan(const CudnnConv2dKey& key) {
  const auto found = library_->planned.find(key);
  if (found != library_->planned.end()) return found->second;
  Planned planned;
  try {
    planned.graph = PassBuilder(key, library_->handle.sm()).build();
    planned.refusal =
        build_cudnn_graph(*planned.graph,
                          library_->handle.get(),
                          static_cast<int64_t>(cudnn_conv2d_workspace_bytes(key)),
                          [&](fe::graph::Graph& graph) { choose_engines(key, graph); });
  } catch (const std::exception& error) {  // the frontend's, of libraries that it does not find
    planned.refusal = error.what();
  }
  return library_->planned.emplace(key, std::move(planned)).first->second;
}

bool CudnnConv2d::supports(const CudnnConv2dKey& key) {
  if (!library_) return false;
  const Planned& planned = plan(key);
  if (!planned.refusal.empty()) why_not_ = planned.refusal;
  return planned.refusal.empty();
}

void CudnnConv2d::run(const CudnnConv2dKey& key, const CudnnConv2dArrays& arrays, void* workspace) {
  std::unordered_map<int64_t, void*> pack = {{kX, const_cast<void*>(arrays.x)},
                                             {kW, const_cast<void*>(arrays.w)},
                                             {kY, const_cast<void*>(arrays.y)}};
  if (key.bias) pack[kBias] = const_cast<void*>(arrays.bias);
  fe::error_t status = plan(key).graph->execute(library_->handle.get(), pack, workspace);
  if (status.is_bad())
    throw Error(ExitCode::kInternal, "cuDNN's convolution failed: " + status.get_message());
}

// Engines for the gradient of weights share the products out over so many copies of it, and some
// turn their operands round.
size_t cudnn_conv2d_workspace_bytes(const CudnnConv2dKey& key) {
  constexpr size_t kSlack = size_t{32} << 20, kMost = size_t{256} << 20, kCopies = 16;
  if (key.pass != Conv2dPass::kBackwardWeight) return kSlack;
  const auto weights = static_cast<size_t>(key.shape.outputs * key.shape.patch());
  return std::min(kMost, kSlack + kCopies * weights * sizeof(float));
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
