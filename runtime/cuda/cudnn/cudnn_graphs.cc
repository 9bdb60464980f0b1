// How the plan of a cuDNN operation is chosen, so that every run chooses the same one.
//
// A pass, described by its key (shape, dtype, options), is a graph of cuDNN operations.
// State::plan() takes these steps. If one fails, the caller uses the native kernel:
//
//   1. validate and build_operation_graph: is the graph well-formed and known to cuDNN?
//   2. create_execution_plans: cuDNN lists its engines for the graph, ordered by heuristic A, a
//      static ranking. Nothing is timed: a timing would choose differently from run to run.
//   3. check_support: choose_engines() removes engines by their numerical notes (nondeterministic,
//      less exact than a sum of products in float). Engines that need more than the workspace that
//      the memory plan has reserved are removed too.
//   4. build_plans: the first engine that is left, compiled for the GPU.
//
// For attention, determinism is requested in the graph itself, so notes remove no engine. Plans are
// kept for each GPU and key for the life of the process. The invariant: the choice depends only on
// the key, the GPU and the version of cuDNN, so all runs, and all ranks with such GPUs, get the
// same bits. refusal_on_described_gpu() takes steps 1 to 3 for a GPU that may be absent.
#include "runtime/cuda/cudnn/cudnn_graphs.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

// JSON would only let the frontend log descriptions of graphs. Without it, the frontend compiles in
// half the time.
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

#include <cmath>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/error.h"
#include "runtime/cuda/check.h"

// The frontend calls cuDNN through this handle.
void* cudnn_frontend::cudnn_dlhandle = nullptr;

namespace lockstep::cuda {
namespace {

namespace fe = cudnn_frontend;
using Graph = std::shared_ptr<fe::graph::Graph>;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using Pack = std::unordered_map<int64_t, void*>;  // arrays by their id in the graph

// Loads cuDNN; throws std::runtime_error if it is not found.
void load_cudnn() {
  if (fe::cudnn_dlhandle != nullptr) return;
  fe::cudnn_dlhandle = ::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
  if (fe::cudnn_dlhandle != nullptr) return;
  const char* text = ::dlerror();
  throw std::runtime_error(text == nullptr ? "libcudnn.so.9 cannot be loaded" : text);
}

int current_gpu() {
  int device = 0;
  LOCKSTEP_CUDA(cudaGetDevice(&device));
  return device;
}

// cuDNN's state on the current GPU.
class Handle {
 public:
  Handle() {
    load_cudnn();
    if (fe::detail::create_handle(&handle_) != CUDNN_STATUS_SUCCESS)
      throw std::runtime_error("cuDNN cannot use this GPU");
    int major = 0, minor = 0;
    const int device = current_gpu();
    LOCKSTEP_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    LOCKSTEP_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    sm_ = major * 10 + minor;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { fe::detail::destroy_handle(handle_); }
  // Returns the handle, set to queue work on `stream`.
  cudnnHandle_t on(Stream stream) {
    if (fe::detail::set_stream(handle_, stream) != CUDNN_STATUS_SUCCESS)
      throw Error(ExitCode::kInternal, "cuDNN rejected a stream");
    return handle_;
  }
  // Compute capability of the GPU: 90 for 9.0.
  int sm() const { return sm_; }

 private:
  cudnnHandle_t handle_ = nullptr;
  int sm_ = 0;
};

// Returns the process's handle for the current GPU. There is only one, because each takes time and
// memory that no plan counts. It is never destroyed, because CUDA may shut down before static
// objects are destroyed. If it cannot be created, every call throws the same error.
Handle& handle_of_gpu() {
  struct Entry {
    std::optional<Handle> handle;
    std::string why_not;
  };
  static auto& entries = *new std::map<int, Entry>;
  const auto [found, is_new] = entries.try_emplace(current_gpu());
  Entry& entry = found->second;
  if (is_new) {
    try {
      entry.handle.emplace();
    } catch (const std::exception& error) {
      entry.why_not = error.what();
    }
  }
  if (!entry.handle) throw std::runtime_error(entry.why_not);
  return *entry.handle;
}

fe::DataType_t cudnn_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return fe::DataType_t::FLOAT;
    case DType::kBF16: return fe::DataType_t::BFLOAT16;
    case DType::kF16: return fe::DataType_t::HALF;
    default: LOCKSTEP_CHECK(false, "cuDNN does not get arrays of {}", name_of(dtype));
  }
}

// An empty graph over arrays of this type, for GPUs of compute capability `sm`; sums are floats.
Graph new_graph(DType dtype, int sm) {
  auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_sm_version(sm);
  graph->set_io_data_type(cudnn_type(dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  return graph;
}

// Ids of the arrays in a graph of attention.
enum AttentionUid : int64_t { kQ = 1, kK, kV, kOut, kStats, kDOut, kDQ, kDK, kDV };

// Builds the graph of one pass.
class AttentionBuilder {
 public:
  AttentionBuilder(const CudnnAttentionKey& key, int sm)
      : key_(key), graph_(new_graph(key.dtype, sm)) {}

  Graph build() {
    key_.backward ? backward() : forward();
    return graph_;
  }

 private:
  std::vector<int64_t> dimensions(AttentionUid uid) const {
    const AttentionShape& s = key_.shape;
    const bool of_keys = uid == kK || uid == kV || uid == kDK || uid == kDV;
    return {s.batch, of_keys ? s.kv_heads : s.heads, s.time, s.head_size};
  }
  // Strides of q, k or v within (B, T, P), or of an array (B, T, H, D).
  std::vector<int64_t> strides(AttentionUid uid) const {
    const AttentionShape& s = key_.shape;
    const int64_t row = uid == kOut || uid == kDOut ? s.width() : s.packed_width();
    return {s.time * row, s.head_size, row, 1};
  }
  Tensor input(AttentionUid uid) {
    return graph_->tensor(fe::graph::Tensor_attributes()
                              .set_uid(uid)
                              .set_dim(dimensions(uid))
                              .set_stride(strides(uid)));
  }
  void output(const Tensor& tensor, AttentionUid uid) const {
    tensor->set_output(true).set_uid(uid).set_dim(dimensions(uid)).set_stride(strides(uid));
  }
  std::vector<int64_t> stats_dimensions() const {
    return {key_.shape.batch, key_.shape.heads, key_.shape.time, 1};
  }
  std::vector<int64_t> stats_strides() const {
    return {key_.shape.heads * key_.shape.time, key_.shape.time, 1, 1};
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(key_.shape.head_size)); }

  void forward() {
    auto attributes = fe::graph::SDPA_attributes().set_generate_stats(true).set_attn_scale(scale());
    if (key_.shape.causal) attributes.set_causal_mask(true);
    const auto [out, stats] = graph_->sdpa(input(kQ), input(kK), input(kV), attributes);
    output(out, kOut);
    stats->set_output(true)
        .set_uid(kStats)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim(stats_dimensions())
        .set_stride(stats_strides());
  }

  void backward() {
    auto attributes =
        fe::graph::SDPA_backward_attributes().set_attn_scale(scale()).set_deterministic_algorithm(
            true);
    if (key_.shape.causal) attributes.set_causal_mask(true);
    const Tensor stats = graph_->tensor(fe::graph::Tensor_attributes()
                                            .set_uid(kStats)
                                            .set_data_type(fe::DataType_t::FLOAT)
                                            .set_dim(stats_dimensions())
                                            .set_stride(stats_strides()));
    const auto [d_q, d_k, d_v] = graph_->sdpa_backward(
        input(kQ), input(kK), input(kV), input(kOut), input(kDOut), stats, attributes);
    output(d_q, kDQ);
    output(d_k, kDK);
    output(d_v, kDV);
  }

  const CudnnAttentionKey key_;
  const Graph graph_;
};

Graph make_graph(const CudnnAttentionKey& key, int sm) { return AttentionBuilder(key, sm).build(); }

// All engines are acceptable, because the graph itself asks for a fixed order.
void choose_engines(const CudnnAttentionKey&, fe::graph::Graph&) {}

int64_t max_workspace_bytes(const CudnnAttentionKey& key) {
  return static_cast<int64_t>(cudnn_attention_workspace_bytes(key));
}

const char* name_of_pass(const CudnnAttentionKey&) { return "attention"; }

Pack pack_arrays(const CudnnAttentionKey& key, const CudnnAttentionArrays& arrays) {
  const int64_t k = key.shape.width(), v = k + key.shape.kv_width();
  const auto part = [&](const void* packed, int64_t first) {
    const auto bytes = static_cast<size_t>(first) * size_of(key.dtype);
    return const_cast<std::byte*>(static_cast<const std::byte*>(packed)) + bytes;
  };
  Pack pack = {{kQ, part(arrays.qkv, 0)},
               {kK, part(arrays.qkv, k)},
               {kV, part(arrays.qkv, v)},
               {kOut, arrays.out},
               {kStats, arrays.log_sum_exp}};
  if (key.backward) {
    pack[kDOut] = const_cast<void*>(arrays.d_out);
    pack[kDQ] = part(arrays.d_qkv, 0);
    pack[kDK] = part(arrays.d_qkv, k);
    pack[kDV] = part(arrays.d_qkv, v);
  }
  return pack;
}

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
    const Conv2dShape& s = key_.shape;
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
void choose_engines(const CudnnConv2dKey& key, fe::graph::Graph& graph) {
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

Graph make_graph(const CudnnConv2dKey& key, int sm) { return Conv2dBuilder(key, sm).build(); }

int64_t max_workspace_bytes(const CudnnConv2dKey& key) {
  return static_cast<int64_t>(cudnn_conv2d_workspace_bytes(key));
}

const char* name_of_pass(const CudnnConv2dKey&) { return "convolution"; }

Pack pack_arrays(const CudnnConv2dKey& key, const CudnnConv2dArrays& arrays) {
  Pack pack = {{kX, const_cast<void*>(arrays.x)},
               {kW, const_cast<void*>(arrays.w)},
               {kY, const_cast<void*>(arrays.y)}};
  if (key.bias) pack[kBias] = const_cast<void*>(arrays.bias);
  return pack;
}

using Step = std::function<fe::error_t()>;

// Runs the steps in order; returns the first error, or an empty string.
std::string first_refusal(std::initializer_list<Step> steps) {
  for (const Step& step : steps) {
    fe::error_t status = step();
    if (status.is_bad()) return status.get_message();
  }
  return "";
}

// Keeps the allowed engines of the key's graph that fit into the planned workspace.
template <typename Key>
fe::error_t check_support(const Key& key, fe::graph::Graph& graph) {
  choose_engines(key, graph);
  graph.deselect_workspace_greater_than(max_workspace_bytes(key));
  return graph.check_support();
}

// Builds the graph's plan for the current GPU. Returns an empty string, or why the graph cannot
// run.
template <typename Key>
std::string build_plan(const Key& key, fe::graph::Graph& graph, cudnnHandle_t handle) {
  const std::string refusal =
      first_refusal({[&] { return graph.validate(); },
                     [&] { return graph.build_operation_graph(handle); },
                     [&] { return graph.create_execution_plans({fe::HeurMode_t::A}); },
                     [&] { return check_support(key, graph); },
                     [&] { return graph.build_plans(); }});
  if (!refusal.empty()) return refusal;
  // Includes what the frontend itself needs.
  int64_t needed = 0;
  fe::error_t status = graph.get_workspace_size(needed);
  if (status.is_bad()) return status.get_message();
  const int64_t limit = max_workspace_bytes(key);
  if (needed > limit)
    return "it needs " + std::to_string(needed) + " bytes of workspace, but " +
           std::to_string(limit) + " are reserved";
  return "";
}

}  // namespace

template <typename Key, typename Arrays>
struct CudnnGraphs<Key, Arrays>::State {
  struct Planned {
    Graph graph;
    std::string refusal;  // empty if it can run
  };

  explicit State(Stream queue) : stream(queue), handle(handle_of_gpu()), planned(plans_of_gpu()) {}

  // One map per process and GPU, like the handle.
  static std::map<Key, Planned>& plans_of_gpu() {
    static auto& all = *new std::map<int, std::map<Key, Planned>>;
    return all[current_gpu()];
  }

  const Planned& plan(const Key& key) {
    const auto found = planned.find(key);
    if (found != planned.end()) return found->second;
    Planned made;
    try {
      made.graph = make_graph(key, handle.sm());
      made.refusal = build_plan(key, *made.graph, handle.on(stream));
    } catch (const std::exception& error) {  // from the frontend, if it does not find a library
      made.refusal = error.what();
    }
    return planned.emplace(key, std::move(made)).first->second;
  }

  Stream stream;
  Handle& handle;
  std::map<Key, Planned>& planned;
};

template <typename Key, typename Arrays>
CudnnGraphs<Key, Arrays>::CudnnGraphs(Stream stream) : state_(std::make_unique<State>(stream)) {}

template <typename Key, typename Arrays>
CudnnGraphs<Key, Arrays>::~CudnnGraphs() = default;

template <typename Key, typename Arrays>
const std::string& CudnnGraphs<Key, Arrays>::refusal(const Key& key) {
  return state_->plan(key).refusal;
}

template <typename Key, typename Arrays>
void CudnnGraphs<Key, Arrays>::run(const Key& key, const Arrays& arrays, void* workspace) {
  Pack pack = pack_arrays(key, arrays);
  fe::error_t status =
      state_->plan(key).graph->execute(state_->handle.on(state_->stream), pack, workspace);
  if (status.is_bad())
    throw Error(ExitCode::kInternal,
                std::string("cuDNN's ") + name_of_pass(key) + " failed: " + status.get_message());
}

template <typename Key, typename Arrays>
std::string CudnnGraphs<Key, Arrays>::refusal_on_described_gpu(const Key& key,
                                                               int sm,
                                                               const std::string& device_json) {
  try {
    load_cudnn();
    const Graph graph = make_graph(key, sm);
    const auto device = std::make_shared<fe::DeviceProperties>();
    fe::error_t status = device->deserialize({device_json.begin(), device_json.end()});
    if (status.is_bad()) return "the device's description: " + status.get_message();
    graph->set_device_properties(device);
    return first_refusal({[&] { return graph->validate(); },
                          [&] { return graph->build_operation_graph(); },
                          [&] { return graph->create_execution_plans({fe::HeurMode_t::A}); },
                          [&] { return check_support(key, *graph); }});
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::string cudnn_version() {
  try {
    load_cudnn();
  } catch (const std::runtime_error&) {
    return "";
  }
  return std::to_string(fe::detail::get_backend_version());
}

template class CudnnGraphs<CudnnAttentionKey, CudnnAttentionArrays>;
template class CudnnGraphs<CudnnConv2dKey, CudnnConv2dArrays>;

}  // namespace lockstep::cuda
