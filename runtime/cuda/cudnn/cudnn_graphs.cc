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
// For attention, determinism is requested in the graph itself, so notes remove no engine. Plans
// are kept for each GPU and key for the life of the process. The invariant: the choice depends only
// on the key, the GPU and the version of cuDNN, so all runs, and all ranks with such GPUs, get the
// same bits. cudnn_answer() takes the same steps for a GPU that may be absent.
//
// With execution.tune, step 4 builds the engine that a file names in place of the first; the steps
// before it are the same. Such a plan lives as long as the object that uses it.
#include "runtime/cuda/cudnn/cudnn_graphs.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/cudnn/cudnn_attention_graph.h"
#include "runtime/cuda/cudnn/cudnn_conv2d_graph.h"
#include "runtime/cuda/cudnn/cudnn_described_gpu.h"
#include "runtime/cuda/cudnn/cudnn_frontend_graph.h"
#include "runtime/cuda/cudnn/cudnn_library.h"

// The frontend calls cuDNN through this handle.
void* cudnn_frontend::cudnn_dlhandle = nullptr;

namespace lockstep::cuda {
namespace {

// Throws std::runtime_error if cuDNN is not found.
void load_cudnn() {
  if (fe::cudnn_dlhandle == nullptr) fe::cudnn_dlhandle = open_cudnn();
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

using BuildStep = std::function<fe::error_t()>;

// The first line: the rest is a line or two for each engine.
std::string message_of(fe::error_t error) {
  constexpr std::string_view kPrefix = "[cudnn_frontend] Error: ";
  std::string line = error.get_message();
  line.resize(std::min(line.size(), line.find('\n')));
  if (line.starts_with(kPrefix)) line.erase(0, kPrefix.size());
  return line.empty() ? "cuDNN gives no reason" : line;
}

// Runs the steps in order; returns the first error, or an empty string.
std::string first_refusal(std::initializer_list<BuildStep> steps) {
  for (const BuildStep& step : steps) {
    fe::error_t status = step();
    if (status.is_bad()) return message_of(status);
  }
  return "";
}

// Keeps the allowed engines of the key's graph that need at most `limit` bytes of workspace.
template <typename Key>
fe::error_t check_support(const Key& key, fe::graph::Graph& graph, int64_t limit) {
  choose_engines(key, graph);
  graph.deselect_workspace_greater_than(limit);
  return graph.check_support();
}

// Returns an empty string, or that the plan needs more than `limit` bytes. Sets `needed`, which
// includes what the frontend itself needs.
std::string check_workspace(fe::graph::Graph& graph, int64_t limit, int64_t& needed) {
  fe::error_t status = graph.get_workspace_size(needed);
  if (status.is_bad()) return message_of(status);
  if (needed <= limit) return "";
  return "it needs " + std::to_string(needed) + " bytes of workspace, but " +
         std::to_string(limit) + " are reserved";
}

// Steps 1 to 3 for the current GPU; returns an empty string, or why the graph cannot run.
template <typename Key>
std::string find_engines(const Key& key, fe::graph::Graph& graph, cudnnHandle_t handle) {
  return first_refusal({[&] { return graph.validate(); },
                        [&] { return graph.build_operation_graph(handle); },
                        [&] { return graph.create_execution_plans({fe::HeurMode_t::A}); },
                        [&] { return check_support(key, graph, max_workspace_bytes(key)); }});
}

// The engines that step 2 has listed.
std::vector<std::string> engines_of(const fe::graph::Graph& graph) {
  std::vector<std::string> engines(static_cast<size_t>(graph.get_execution_plan_count()));
  for (size_t i = 0; i < engines.size(); ++i) {
    if (graph.get_plan_name_at_index(static_cast<int64_t>(i), engines[i]).is_bad())
      engines[i].clear();
  }
  return engines;
}

// Step 4 with the engine of this name, or with the first if it is empty.
std::string build(fe::graph::Graph& graph, const std::string& engine) {
  if (engine.empty()) return first_refusal({[&] { return graph.build_plans(); }});
  const std::vector<std::string> engines = engines_of(graph);
  const auto found = std::ranges::find(engines, engine);
  if (found == engines.end()) return "cuDNN does not offer it";
  return first_refusal({[&] { return graph.build_plan_at_index(found - engines.begin()); }});
}

// All steps. Returns an empty string, or why the graph cannot run.
template <typename Key>
std::string build_plan(const Key& key,
                       fe::graph::Graph& graph,
                       cudnnHandle_t handle,
                       const std::string& engine) {
  std::string refusal = find_engines(key, graph, handle);
  if (refusal.empty()) refusal = build(graph, engine);
  int64_t needed = 0;
  return refusal.empty() ? check_workspace(graph, max_workspace_bytes(key), needed) : refusal;
}

// The same for a GPU that is described. See CudnnQuestion.
template <typename Key>
CudnnAnswer answer_for_described_gpu(const Key& key,
                                     const DescribedGpu& gpu,
                                     const CudnnQuestion& question) {
  try {
    load_cudnn();
    const Graph graph = make_graph(key, gpu.sm);
    const auto device = std::make_shared<fe::DeviceProperties>();
    fe::error_t status = device->deserialize({gpu.json.begin(), gpu.json.end()});
    if (status.is_bad()) return {"the device's description: " + status.get_message()};
    graph->set_device_properties(device);
    const int64_t limit =
        question.any_workspace ? std::numeric_limits<int64_t>::max() : max_workspace_bytes(key);
    CudnnAnswer answer;
    answer.refusal =
        first_refusal({[&] { return graph->validate(); },
                       [&] { return graph->build_operation_graph(); },
                       [&] { return graph->create_execution_plans({fe::HeurMode_t::A}); },
                       [&] { return check_support(key, *graph, limit); }});
    answer.offers = engines_of(*graph);
    if (!answer.refusal.empty() || !question.build) return answer;
    answer.refusal = build(*graph, question.engine);
    if (answer.refusal.empty())
      answer.refusal = first_refusal({[&] { return graph->get_plan_name(answer.engine); }});
    if (answer.refusal.empty())
      answer.refusal = check_workspace(*graph, limit, answer.workspace_bytes);
    return answer;
  } catch (const std::exception& error) {  // from the frontend, if it does not find a library
    return {error.what()};
  }
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

  // With this engine, or with the first if it is empty.
  Planned make(const Key& key, const std::string& engine) {
    Planned made;
    try {
      made.graph = make_graph(key, handle.sm());
      made.refusal = build_plan(key, *made.graph, handle.on(stream), engine);
    } catch (const std::exception& error) {  // from the frontend, if it does not find a library
      made.refusal = error.what();
    }
    return made;
  }

  const Planned& plan(const Key& key) {
    if (const auto found = used.find(key); found != used.end()) return found->second;
    if (const auto found = planned.find(key); found != planned.end()) return found->second;
    return planned.emplace(key, make(key, "")).first->second;
  }

  Stream stream;
  Handle& handle;
  std::map<Key, Planned>& planned;
  std::map<Key, Planned> used;  // in place of those, by use()
};

template <typename Key, typename Arrays>
CudnnGraphs<Key, Arrays>::CudnnGraphs(Stream stream) : state_(std::make_unique<State>(stream)) {}

template <typename Key, typename Arrays>
CudnnGraphs<Key, Arrays>::~CudnnGraphs() = default;

template <typename Key, typename Arrays>
int CudnnGraphs<Key, Arrays>::sm() const {
  return state_->handle.sm();
}

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
std::vector<std::string> CudnnGraphs<Key, Arrays>::offers(const Key& key, std::string& why_not) {
  try {
    const Graph graph = make_graph(key, state_->handle.sm());
    why_not = find_engines(key, *graph, state_->handle.on(state_->stream));
    return why_not.empty() ? engines_of(*graph) : std::vector<std::string>{};
  } catch (const std::exception& error) {
    why_not = error.what();
    return {};
  }
}

template <typename Key, typename Arrays>
std::string CudnnGraphs<Key, Arrays>::use(const Key& key, const std::string& engine) {
  state_->used.erase(key);  // its memory first
  typename State::Planned made = state_->make(key, engine);
  std::string refusal = made.refusal;
  if (refusal.empty()) state_->used.emplace(key, std::move(made));
  return refusal;
}

CudnnAnswer cudnn_answer(const CudnnAttentionKey& key,
                         const DescribedGpu& gpu,
                         const CudnnQuestion& question) {
  return answer_for_described_gpu(key, gpu, question);
}

CudnnAnswer cudnn_answer(const CudnnConv2dKey& key,
                         const DescribedGpu& gpu,
                         const CudnnQuestion& question) {
  return answer_for_described_gpu(key, gpu, question);
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
