#pragma once
// The result of a training run: its JSON, its summary and the run folder's end.json.

#include <optional>
#include <string>

#include "launcher/forecast/kept_forecast.h"
#include "runtime/train/trainer.h"

namespace lockstep::launcher {

// Reports the result of a run that has ended, with the forecast made before its start, and writes
// it to `json_path` unless that is empty. All ranks together.
void report_result(const train::TrainResult& result,
                   const train::RunContext& context,
                   const std::optional<forecast::KeptForecast>& forecast,
                   const std::string& json_path);

}  // namespace lockstep::launcher
