#include "runtime/train/run_parts.h"

#include "runtime/base/error.h"

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
  backend.reserve(plan.device_bytes());
  RunMemory memory;
  memory.parameters = take(kParametersRow);
  memory.masters = take_floats(kMastersRow);
  memory.gradients = take_floats(kGradientsRow);
  memory.moments = take_floats(kMomentsRow);
  memory.arena = take(kArenaRow);
  memory.staging = take_floats(kStagingRow);
  memory.train_batches = take_host(kTrainBatchesRow);
  memory.eval_batches = take_host(kEvalBatchesRow);
  memory.device_batches = take(kDeviceBatchesRow);
  LOCKSTEP_CHECK(backend.allocated_bytes() == plan.memory_bytes() - plan.row_bytes(kDatasetRow),
                 "{} bytes are allocated, {} planned ",
                 backend.allocated_bytes(),
                 plan.memory_bytes() - plan.row_bytes(kDatasetRow));
  return memory;
}

}  // namespace lockstep
