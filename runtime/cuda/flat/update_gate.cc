#include "runtime/cuda/flat/update_gate.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "runtime/cuda/check.h"

namespace lockstep::cuda {
namespace {

class QueuedGate final : public exec::UpdateGate {
 public:
  QueuedGate(collectives::StepSums* sums,
             GateState* opened,
             GateState* gate,
             Stream stream,
             std::function<void(CUevent_st*)> wait)
      : sums_(sums), opened_(opened), gate_(gate), stream_(stream), wait_(std::move(wait)) {
    LOCKSTEP_CUDA(cudaEventCreateWithFlags(&decided_, cudaEventDisableTiming));
  }
  QueuedGate(const QueuedGate&) = delete;
  QueuedGate& operator=(const QueuedGate&) = delete;
  ~QueuedGate() override { cudaEventDestroy(decided_); }

  void decide(const collectives::GatheredSums& gathered, const exec::UpdateRule& rule) override {
    decide_update(gathered, rule, sums_, gate_, stream_);
    LOCKSTEP_CUDA(cudaEventRecord(decided_, stream_));
  }
  collectives::StepSums sums() override {
    wait_(decided_);
    return *sums_;
  }
  void open(float gradient_scale) override {
    *opened_ = {gradient_scale, 1};
    LOCKSTEP_CUDA(
        cudaMemcpyAsync(gate_, opened_, sizeof(*opened_), cudaMemcpyHostToDevice, stream_));
    LOCKSTEP_CUDA(cudaEventRecord(decided_, stream_));
  }

 private:
  collectives::StepSums* sums_;
  GateState *opened_, *gate_;
  Stream stream_;
  std::function<void(CUevent_st*)> wait_;
  cudaEvent_t decided_ = nullptr;
};

}  // namespace

std::unique_ptr<exec::UpdateGate> make_update_gate(collectives::StepSums* sums,
                                                   GateState* opened,
                                                   GateState* gate,
                                                   Stream stream,
                                                   std::function<void(CUevent_st*)> wait) {
  return std::make_unique<QueuedGate>(sums, opened, gate, stream, std::move(wait));
}

}  // namespace lockstep::cuda
