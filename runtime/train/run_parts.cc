#include "runtime/train/run_parts.h"

namespace lockstep {

RunMemory allocate_run(Backend& backend, const Plan& plan) {
  const auto take = [&](const char* row, Backend::Place place = Backend::Place::kDevice) {
    const size_t bytes = plan.row_bytes(row);
    return bytes == 0 ? nullptr : backend.allocate(bytes, row, place);
  };
  const auto take_host = [&](const char* row) {
    return std::span(take(row, Backend::Place::kHost), plan.row_bytes(row));
  };
  const auto take_floats = [&](const char* row) { return reinterpret_cast<float*>(take(row)); };
  RunMemory memory;
  memory.parameters = take_floats(kParametersRow);
  memory.gradients = take_floats(kGradientsRow);
  memory.moments = take_floats(kMomentsRow);
  memory.arena = take(kArenaRow);
  memory.staging = take_floats(kStagingRow);
  memory.train_batches = take_host(kTrainBatchesRow);
  memory.eval_batches = take_host(kEvalBatchesRow);
  memory.device_batches = take(kDeviceBatchesRow);
  return memory;
}

HostCopy host_weights(const RunParts& parts, const RunMemory& memory) {
  return HostCopy(parts.backend, memory.parameters, parts.plan.layout.elements);
}

}  // namespace lockstep
