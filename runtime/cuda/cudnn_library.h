#pragma once
// cuDNN and its frontend, which is headers alone and takes long to compile: only the files that
// build graphs include this. cuDNN is found when it is first used, so that the program runs
// without.

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

#include <map>
#include <memory>
#include <string>

#include "runtime/base/dtype.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// Finds cuDNN; throws std::runtime_error where there is none.
void load_cudnn();

// A handle whose work is queued on one stream of the current GPU.
class CudnnHandle {
 public:
  // Throws std::runtime_error where cuDNN is not to be found or cannot use the GPU.
  explicit CudnnHandle(Stream stream);
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;
  ~CudnnHandle();
  cudnnHandle_t get() const { return handle_; }
  // Compute capability of the GPU, 90 for 9.0.
  int sm() const { return sm_; }

 private:
  cudnnHandle_t handle_ = nullptr;
  int sm_ = 0;
};

cudnn_frontend::DataType_t cudnn_type(DType dtype);

// Runs the steps that lead to a supported graph; the first refusal, or nothing.
template <typename... Steps>
std::string first_refusal(Steps... steps) {
  std::string refusal;
  const auto take = [&](auto step) {
    cudnn_frontend::error_t status = step();
    if (!status.is_bad()) return true;
    refusal = status.get_message();
    return false;
  };
  (take(steps) && ...);
  return refusal;
}

// Builds the graph's plan for the GPU at hand, after `choose` has ruled engines out, with at most
// so many bytes of workspace; empty, or why it cannot run.
template <typename Choose>
std::string build_cudnn_graph(cudnn_frontend::graph::Graph& graph,
                              cudnnHandle_t handle,
                              int64_t most_bytes,
                              Choose choose) {
  const std::string refusal =
      first_refusal([&] { return graph.validate(); },
                    [&] { return graph.build_operation_graph(handle); },
                    [&] { return graph.create_execution_plans({cudnn_frontend::HeurMode_t::A}); },
                    [&] {
                      choose(graph);
                      graph.deselect_workspace_greater_than(most_bytes);
                      return graph.check_support();
                    },
                    [&] { return graph.build_plans(); });
  if (!refusal.empty()) return refusal;
  // With what the frontend itself needs.
  int64_t needed = 0;
  cudnn_frontend::error_t status = graph.get_workspace_size(needed);
  if (status.is_bad()) return status.get_message();
  if (needed > most_bytes)
    return "it needs " + std::to_string(needed) + " bytes of workspace, " +
           std::to_string(most_bytes) + " are set aside";
  return "";
}

// Graphs that are built once for each key and kept, on one stream.
template <typename Key>
class CudnnGraphs {
 public:
  struct Planned {
    std::shared_ptr<cudnn_frontend::graph::Graph> graph;
    std::string refusal;  // empty: it can run
  };

  // Throws std::runtime_error as CudnnHandle does.
  explicit CudnnGraphs(Stream stream) : handle_(stream) {}

  cudnnHandle_t handle() const { return handle_.get(); }
  // make(compute capability) describes the graph; the rest is as in build_cudnn_graph().
  template <typename Make, typename Choose>
  const Planned& plan(const Key& key, int64_t most_bytes, Make make, Choose choose) {
    const auto found = planned_.find(key);
    if (found != planned_.end()) return found->second;
    Planned planned;
    try {
      planned.graph = make(handle_.sm());
      planned.refusal = build_cudnn_graph(*planned.graph, handle_.get(), most_bytes, choose);
    } catch (const std::exception& error) {  // the frontend's, of libraries that it does not find
      planned.refusal = error.what();
    }
    return planned_.emplace(key, std::move(planned)).first->second;
  }

 private:
  CudnnHandle handle_;
  std::map<Key, Planned> planned_;  // gone before the handle
};

// Asks whether the graph has an engine on a GPU that is described in JSON and need not be there;
// empty, or why not.
template <typename Choose>
std::string refusal_on_described_gpu(cudnn_frontend::graph::Graph& graph,
                                     const std::string& device_json,
                                     int64_t most_bytes,
                                     Choose choose) {
  const auto device = std::make_shared<cudnn_frontend::DeviceProperties>();
  cudnn_frontend::error_t status = device->deserialize({device_json.begin(), device_json.end()});
  if (status.is_bad()) return "the device's description: " + status.get_message();
  graph.set_device_properties(device);
  return first_refusal(
      [&] { return graph.validate(); },
      [&] { return graph.build_operation_graph(); },
      [&] { return graph.create_execution_plans({cudnn_frontend::HeurMode_t::A}); },
      [&] {
        choose(graph);
        graph.deselect_workspace_greater_than(most_bytes);
        return graph.check_support();
      });
}

}  // namespace lockstep::cuda
