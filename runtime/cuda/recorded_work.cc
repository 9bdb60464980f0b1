#include "runtime/cuda/recorded_work.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/cuda/check.h"

namespace lockstep::cuda {

class Recorder::Work final : public exec::RepeatedWork {
 public:
  explicit Work(Recorder& recorder) : recorder_(recorder) {}

  void run(const std::function<void()>& work) override {
    if (!std::exchange(warm_, true)) {
      work();
      return;
    }
    if (!recorded_) {
      parts_.clear();
      recorder_.record(work, parts_);
      recorded_ = true;
    }
    for (const auto& part : parts_) part();
  }

 private:
  Recorder& recorder_;
  bool warm_ = false, recorded_ = false;
  Parts parts_;  // graphs, and the work that runs between them
};

std::unique_ptr<exec::RepeatedWork> Recorder::repeated_work() {
  return std::make_unique<Work>(*this);
}

void Recorder::record(const std::function<void()>& work, Parts& parts) {
  parts_ = &parts;
  try {
    begin();
    work();
    end();
    parts_ = nullptr;
  } catch (...) {
    parts_ = nullptr;
    cudaGraph_t recorded = nullptr;
    cudaStreamEndCapture(stream_, &recorded);  // if it is still being captured
    if (recorded != nullptr) cudaGraphDestroy(recorded);
    cudaGetLastError();
    throw;
  }
}

void Recorder::outside(std::function<void()> work) {
  if (parts_ == nullptr) return work();
  end();
  parts_->push_back(std::move(work));
  begin();
}

// Captures only this thread, because the loader's threads may pin memory meanwhile.
void Recorder::begin() {
  LOCKSTEP_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
}

// Turns the captured work into a part, unless it is empty.
void Recorder::end() {
  cudaGraph_t recorded = nullptr;
  LOCKSTEP_CUDA(cudaStreamEndCapture(stream_, &recorded));
  const std::unique_ptr<CUgraph_st, decltype(&cudaGraphDestroy)> owner(recorded, cudaGraphDestroy);
  size_t nodes = 0;
  LOCKSTEP_CUDA(cudaGraphGetNodes(recorded, nullptr, &nodes));
  if (nodes == 0) return;
  parts_->push_back([graph = instantiate(recorded, nodes), stream = stream_] {
    LOCKSTEP_CUDA(cudaGraphLaunch(graph.get(), stream));
  });
}

std::shared_ptr<CUgraphExec_st> Recorder::instantiate(cudaGraph_t recorded, size_t nodes) {
  size_t before = 0, after = 0, total = 0;
  LOCKSTEP_CUDA(cudaMemGetInfo(&before, &total));
  cudaGraphExec_t graph = nullptr;
  // The exchange between ranks has a stream of higher priority, which its nodes in the graph must
  // keep.
  LOCKSTEP_CUDA(cudaGraphInstantiate(&graph, recorded, cudaGraphInstantiateFlagUseNodePriority));
  ++*graphs_;
  std::shared_ptr<CUgraphExec_st> owned(graph, [graphs = graphs_](cudaGraphExec_t g) {
    cudaGraphExecDestroy(g);
    --*graphs;
  });
  LOCKSTEP_CUDA(cudaGraphUpload(graph, stream_));  // takes now what the first launch would take
  LOCKSTEP_CUDA(cudaMemGetInfo(&after, &total));
  count(nodes, before - std::min(before, after));
  return owned;
}

void Recorder::plan(size_t bytes) {
  planned_bytes_ = bytes;
  taken_bytes_ = nodes_ = 0;
}

// What other processes take meanwhile counts too, so this is no more than a warning.
void Recorder::count(size_t nodes, size_t bytes) {
  constexpr double kMiB = 1024.0 * 1024;
  const bool fitted = taken_bytes_ <= planned_bytes_;
  nodes_ += nodes;
  taken_bytes_ += bytes;
  log_debug("CUDA graphs: {} nodes take {:.1f} MiB of {:.1f} MiB planned",
            nodes_,
            static_cast<double>(taken_bytes_) / kMiB,
            static_cast<double>(planned_bytes_) / kMiB);
  if (planned_bytes_ > 0 && fitted && taken_bytes_ > planned_bytes_)
    log_warn(
        "CUDA graphs of {} nodes take {:.1f} MiB of the GPU's memory, {:.1f} MiB are planned: "
        "a newer driver (for CUDA 12.4) may take less, --eager takes none",
        nodes_,
        static_cast<double>(taken_bytes_) / kMiB,
        static_cast<double>(planned_bytes_) / kMiB);
}

}  // namespace lockstep::cuda
