#include "runtime/cuda/recorded_work.h"

#include <cuda_runtime_api.h>

#include "runtime/base/error.h"
#include "runtime/cuda/check.h"

namespace lockstep::cuda {
namespace {

class RecordedWork final : public RepeatedWork {
 public:
  explicit RecordedWork(Stream stream) : stream_(stream) {}
  RecordedWork(const RecordedWork&) = delete;
  RecordedWork& operator=(const RecordedWork&) = delete;
  ~RecordedWork() override {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  }

  void run(const std::function<void()>& work) override {
    if (!warm_) {
      work();
      warm_ = true;
      return;
    }
    if (graph_ == nullptr) record(work);
    LOCKSTEP_CUDA(cudaGraphLaunch(graph_, stream_));
  }

 private:
  void record(const std::function<void()>& work) {
    // Of this thread alone: the loader's may pin memory meanwhile.
    LOCKSTEP_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    cudaGraph_t recorded = nullptr;
    try {
      work();
    } catch (...) {
      cudaStreamEndCapture(stream_, &recorded);
      if (recorded != nullptr) cudaGraphDestroy(recorded);
      cudaGetLastError();
      throw;
    }
    LOCKSTEP_CUDA(cudaStreamEndCapture(stream_, &recorded));
    const cudaError_t error = cudaGraphInstantiate(&graph_, recorded, 0);
    cudaGraphDestroy(recorded);
    check(error, "cudaGraphInstantiate");
  }

  Stream stream_;
  bool warm_ = false;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace

std::unique_ptr<RepeatedWork> make_recorded_work(Stream stream) {
  return std::make_unique<RecordedWork>(stream);
}

}  // namespace lockstep::cuda
