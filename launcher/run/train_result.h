#pragma once
// The result of a training run: its JSON, its summary and the run folder's end.json.

#include <string>

#include "runtime/train/trainer.h"

namespace lockstep {

// Reports the result of a run that has ended, and writes it to `json_path` unless that is empty.
// All ranks together.
void report_result(const TrainResult& result,
                   const RunContext& context,
                   const std::string& json_path);

}  // namespace lockstep
