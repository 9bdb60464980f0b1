#pragma once
// The least time of a training step on a GPU that is only named, for `lockstep plan --gpu`.

#include "runtime/base/json.h"
#include "runtime/cuda/plan/gpu_models.h"
#include "runtime/run/prepared_run.h"

namespace lockstep::launcher {

// Prints the prediction, with the products that take longest, and adds it to `json` under keys that
// begin with "predicted_".
void predict_step(const run::PreparedRun& prepared, const cuda::GpuModel& model, Json& json);

}  // namespace lockstep::launcher
