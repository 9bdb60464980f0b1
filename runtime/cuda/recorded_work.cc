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
    if (!std::exchange(recorded_, true)) recorder_.record(work, parts_);
    for (const auto& part : parts_) part();
  }

 private:
  Recorder& recorder_;
  bool warm_ = false, recorded_ = false;
  Parts parts_;  // graphs, and what runs between them
};

std::unique_ptr<RepeatedWork> Recorder::repeated_work() { return std::make_unique<Work>(*this); }

void Recorder::record(const std::function<void()>& work, Parts& parts) {
  parts_ = &parts;
  begin();
  try {
    work();
  } catch (...) {
    parts_ = nullptr;
    cudaGraph_t recorded = nullptr;
    cudaStreamEndCapture(stream_, &recorded);
    if (recorded != nullptr) cudaGraphDestroy(recorded);
    cudaGetLastError();
    throw;
  }
  end();
  parts_ = nullptr;
}

void Recorder::outside(std::function<void()> work) {
  if (parts_ == nullptr) return work();
  end();
  parts_->push_back(std::move(work));
  begin();
}

// Of this thread alone: the loader's may pin memory meanwhile.
void Recorder::begin() {
  LOCKSTEP_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
}

// Makes what was captured a part, unless it is nothing.
void Recorder::end() {
  cudaGraph_t recorded = nullptr;
  LOCKSTEP_CUDA(cudaStreamEndCapture(stream_, &recorded));
  size_t nodes = 0;
  cudaError_t error = cudaGraphGetNodes(recorded, nullptr, &nodes);
  cudaGraphExec_t graph = nullptr;
  // What ranks exchange has a stream of higher priority, which its part of the graph is to keep.
  if (error == cudaSuccess && nodes > 0)
    error = cudaGraphInstantiate(&graph, recorded, cudaGraphInstantiateFlagUseNodePriority);
  cudaGraphDestroy(recorded);
  check(error, "cudaGraphInstantiate");
  if (graph == nullptr) return;
  const auto destroy = [](cudaGraphExec_t g) { cudaGraphExecDestroy(g); };
  parts_->push_back([owned = std::shared_ptr<CUgraphExec_st>(graph, destroy), stream = stream_] {
    LOCKSTEP_CUDA(cudaGraphLaunch(owned.get(), stream));
  });
}

}  // namespace lockstep::cuda
