#include "runtime/cuda/recorded_work.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "runtime/base/error.h"
#include "runtime/cuda/check.h"

namespace lockstep::cuda {

class Recorder::Work final : public RepeatedWork {
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

std::unique_ptr<RepeatedWork> Recorder::repeated_work() { return std::make_unique<Work>(*this); }

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
  cudaGraphExec_t graph = nullptr;
  // The exchange between ranks has a stream of higher priority, which its nodes in the graph must
  // keep.
  if (nodes > 0)
    LOCKSTEP_CUDA(cudaGraphInstantiate(&graph, recorded, cudaGraphInstantiateFlagUseNodePriority));
  if (graph == nullptr) return;
  const auto destroy = [](cudaGraphExec_t g) { cudaGraphExecDestroy(g); };
  parts_->push_back([owned = std::shared_ptr<CUgraphExec_st>(graph, destroy), stream = stream_] {
    LOCKSTEP_CUDA(cudaGraphLaunch(owned.get(), stream));
  });
}

}  // namespace lockstep::cuda
