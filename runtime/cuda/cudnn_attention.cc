// The only file that includes cudnn-frontend, which takes long to compile. It finds cuDNN when it
// is first used, so that the program runs without.
#include "runtime/cuda/cudnn_attention.h"

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <cmath>
#include <map>

#include "runtime/base/error.h"
#include "runtime/cuda/check.h"

// The frontend calls cuDNN through this.
void* cudnn_frontend::cudnn_dlhandle = nullptr;

namespace lockstep::cuda {
namespace {

// Finds cuDNN; throws std::runtime_error where there is none.
void load_cudnn() {
  if (cudnn_frontend::cudnn_dlhandle != nullptr) return;
  cudnn_frontend::cudnn_dlhandle = ::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
  if (cudnn_frontend::cudnn_dlhandle != nullptr) return;
  const char* text = ::dlerror();
  throw std::runtime_error(text == nullptr ? "libcudnn.so.9 cannot be loaded" : text);
}

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// Names of the arrays within a graph.
enum Uid : int64_t { kQ = 1, kK, kV, kOut, kStats, kDOut, kDQ, kDK, kDV };

// Makes the graph of one pass.
class PassBuilder {
 public:
  // `sm`: compute capability of a GPU that is not there; 0: that of the GPU at hand.
  explicit PassBuilder(const CudnnAttentionKey& key, int sm = 0) : key_(key) {
    if (sm > 0) graph_->set_sm_version(sm);
    graph_
        ->set_io_data_type(key.dtype == DType::kBF16 ? fe::DataType_t::BFLOAT16
                                                     : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  std::shared_ptr<fe::graph::Graph> build() {
    key_.backward ? backward() : forward();
    return graph_;
  }

 private:
  std::vector<int64_t> dimensions() const {
    const AttentionShape& s = key_.shape;
    return {s.batch, s.heads, s.time, s.head_size};
  }
  // Of q, k or v within (B, T, 3, H, D), or of (B, T, H, D).
  std::vector<int64_t> strides(int64_t parts) const {
    const AttentionShape& s = key_.shape;
    const int64_t row = parts * s.heads * s.head_size;
    return {s.time * row, s.head_size, row, 1};
  }
  Tensor input(Uid uid, int64_t parts) {
    return graph_->tensor(fe::graph::Tensor_attributes()
                              .set_uid(uid)
                              .set_dim(dimensions())
                              .set_stride(strides(parts)));
  }
  void output(const Tensor& tensor, Uid uid, int64_t parts) const {
    tensor->set_output(true).set_uid(uid).set_dim(dimensions()).set_stride(strides(parts));
  }
  std::vector<int64_t> stats_dimensions() const {
    return {key_.shape.batch, key_.shape.heads, key_.shape.time, 1};
  }
  std::vector<int64_t> stats_strides() const {
    return {key_.shape.heads * key_.shape.time, key_.shape.time, 1, 1};
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(key_.shape.head_size)); }

  void forward() {
    auto how = fe::graph::SDPA_attributes().set_generate_stats(true).set_attn_scale(scale());
    if (key_.shape.causal) how.set_causal_mask(true);
    const auto [out, stats] = graph_->sdpa(input(kQ, 3), input(kK, 3), input(kV, 3), how);
    output(out, kOut, 1);
    stats->set_output(true)
        .set_uid(kStats)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim(stats_dimensions())
        .set_stride(stats_strides());
  }

  void backward() {
    auto how =
        fe::graph::SDPA_backward_attributes().set_attn_scale(scale()).set_deterministic_algorithm(
            true);
    if (key_.shape.causal) how.set_causal_mask(true);
    const Tensor stats = graph_->tensor(fe::graph::Tensor_attributes()
                                            .set_uid(kStats)
                                            .set_data_type(fe::DataType_t::FLOAT)
                                            .set_dim(stats_dimensions())
                                            .set_stride(stats_strides()));
    const auto [d_q, d_k, d_v] = graph_->sdpa_backward(
        input(kQ, 3), input(kK, 3), input(kV, 3), input(kOut, 1), input(kDOut, 1), stats, how);
    output(d_q, kDQ, 3);
    output(d_k, kDK, 3);
    output(d_v, kDV, 3);
  }

  const CudnnAttentionKey key_;
  std::shared_ptr<fe::graph::Graph> graph_ = std::make_shared<fe::graph::Graph>();
};

// Runs the steps that lead to a supported graph; the first refusal, or nothing.
template <typename... Steps>
std::string first_refusal(Steps... steps) {
  std::string refusal;
  const auto take = [&](auto step) {
    fe::error_t status = step();
    if (!status.is_bad()) return true;
    refusal = status.get_message();
    return false;
  };
  (take(steps) && ...);
  return refusal;
}

// Builds the graph for the GPU at hand; empty, or why it cannot run.
std::string build(const CudnnAttentionKey& key, fe::graph::Graph& graph, cudnnHandle_t handle) {
  const auto most = static_cast<int64_t>(cudnn_attention_workspace_bytes(key));
  const std::string refusal =
      first_refusal([&] { return graph.validate(); },
                    [&] { return graph.build_operation_graph(handle); },
                    [&] { return graph.create_execution_plans({fe::HeurMode_t::A}); },
                    [&] {
                      graph.deselect_workspace_greater_than(most);
                      return graph.check_support();
                    },
                    [&] { return graph.build_plans(); });
  if (!refusal.empty()) return refusal;
  // With what the frontend itself needs.
  int64_t needed = 0;
  fe::error_t status = graph.get_workspace_size(needed);
  if (status.is_bad()) return status.get_message();
  if (needed > most)
    return fmt::format("it needs {} bytes of workspace, {} are set aside", needed, most);
  return "";
}

// Compute capability of the current GPU, 90 for 9.0.
int current_sm() {
  int device = 0, major = 0, minor = 0;
  LOCKSTEP_CUDA(cudaGetDevice(&device));
  LOCKSTEP_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  LOCKSTEP_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major * 10 + minor;
}

}  // namespace

struct CudnnAttention::Planned {
  std::shared_ptr<fe::graph::Graph> graph;
  std::string refusal;  // empty: it can run
};

struct CudnnAttention::Library {
  cudnnHandle_t handle = nullptr;
  int sm = 0;
  std::map<CudnnAttentionKey, Planned> planned;

  ~Library() {
    planned.clear();
    if (handle != nullptr) fe::detail::destroy_handle(handle);
  }
};

CudnnAttention::CudnnAttention(Stream stream) : stream_(stream) {
  // The frontend throws where a library is not to be found.
  try {
    load_cudnn();
    auto library = std::make_unique<Library>();
    if (fe::detail::create_handle(&library->handle) != CUDNN_STATUS_SUCCESS ||
        fe::detail::set_stream(library->handle, stream) != CUDNN_STATUS_SUCCESS) {
      why_not_ = "cuDNN cannot use this GPU";
      return;
    }
    library->sm = current_sm();
    library_ = std::move(library);
  } catch (const std::exception& error) {
    why_not_ = error.what();
  }
}

CudnnAttention::~CudnnAttention() = default;

CudnnAttention::Planned& CudnnAttention::plan(const CudnnAttentionKey& key) {
  const auto found = library_->planned.find(key);
  if (found != library_->planned.end()) return found->second;
  Planned planned;
  try {
    planned.graph = PassBuilder(key, library_->sm).build();
    planned.refusal = build(key, *planned.graph, library_->handle);
  } catch (const std::exception& error) {  // the frontend's, of libraries that it does not find
    planned.refusal = error.what();
  }
  return library_->planned.emplace(key, std::move(planned)).first->second;
}

bool CudnnAttention::supports(const AttentionShape& shape, DType dtype) {
  if (!library_ || dtype == DType::kF32) return false;
  AttentionShape part = shape;
  part.batch = cudnn_backward_batch(shape);
  for (const CudnnAttentionKey& key :
       {CudnnAttentionKey{shape, dtype, false}, CudnnAttentionKey{part, dtype, true}}) {
    const Planned& planned = plan(key);
    if (planned.refusal.empty()) continue;
    why_not_ = planned.refusal;
    return false;
  }
  return true;
}

void CudnnAttention::run(const CudnnAttentionKey& key,
                         const CudnnAttentionArrays& arrays,
                         void* workspace) {
  // The parts of a packed array lie C elements apart.
  const auto part = [&](const void* packed, int64_t number) {
    const auto bytes =
        static_cast<size_t>(number * key.shape.heads * key.shape.head_size) * size_of(key.dtype);
    return const_cast<std::byte*>(static_cast<const std::byte*>(packed)) + bytes;
  };
  std::unordered_map<int64_t, void*> pack = {{kQ, part(arrays.qkv, 0)},
                                             {kK, part(arrays.qkv, 1)},
                                             {kV, part(arrays.qkv, 2)},
                                             {kOut, arrays.out},
                                             {kStats, arrays.log_sum_exp}};
  if (key.backward) {
    pack[kDOut] = const_cast<void*>(arrays.d_out);
    pack[kDQ] = part(arrays.d_qkv, 0);
    pack[kDK] = part(arrays.d_qkv, 1);
    pack[kDV] = part(arrays.d_qkv, 2);
  }
  fe::error_t status = plan(key).graph->execute(library_->handle, pack, workspace);
  if (status.is_bad())
    throw Error(ExitCode::kInternal, "cuDNN's attention failed: " + status.get_message());
}

namespace {

size_t up(int64_t n, int64_t unit) { return static_cast<size_t>((n + unit - 1) / unit * unit); }

// The gradient of the scores in 16 bits, in whole tiles: what the fixed order of the sums costs.
size_t score_bytes(const AttentionShape& shape, int64_t batch) {
  return 2 * static_cast<size_t>(batch * shape.heads) * up(shape.time, 64) * up(shape.time, 128);
}

}  // namespace

int64_t cudnn_backward_batch(const AttentionShape& shape) {
  constexpr size_t kMost = size_t{1} << 30;
  int64_t batch = shape.batch;
  while (batch > 1 && (shape.batch % batch != 0 || score_bytes(shape, batch) > kMost)) --batch;
  return batch;
}

size_t cudnn_attention_workspace_bytes(const CudnnAttentionKey& key) {
  constexpr size_t kSlack = size_t{1} << 20;
  if (!key.backward) return kSlack;
  const AttentionShape& s = key.shape;
  const size_t sums = static_cast<size_t>(s.batch * s.heads) * up(s.time, 128) * sizeof(float);
  return score_bytes(s, s.batch) + sums + kSlack;
}

std::string cudnn_attention_refusal(const CudnnAttentionKey& key,
                                    int sm,
                                    const std::string& device_json) {
  try {
    load_cudnn();
    const auto device = std::make_shared<fe::DeviceProperties>();
    fe::error_t status = device->deserialize({device_json.begin(), device_json.end()});
    if (status.is_bad()) return "the device's description: " + status.get_message();
    const std::shared_ptr<fe::graph::Graph> graph = PassBuilder(key, sm).build();
    graph->set_device_properties(device);
    return first_refusal([&] { return graph->validate(); },
                         [&] { return graph->build_operation_graph(); },
                         [&] { return graph->create_execution_plans({fe::HeurMode_t::A}); },
                         [&] {
                           graph->deselect_workspace_greater_than(
                               static_cast<int64_t>(cudnn_attention_workspace_bytes(key)));
                           return graph->check_support();
                         });
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace lockstep::cuda
