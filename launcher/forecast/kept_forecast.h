#pragma once
// The forecast that a run makes before its start, beside which its measured steps stand.

#include <optional>
#include <string>

#include "launcher/forecast/range.h"
#include "runtime/base/json.h"
#include "runtime/run/prepared_run.h"

namespace lockstep::forecast {

struct KeptForecast {
  std::string on;    // the hardware
  Range step_s;      // predicted
  double run_s = 0;  // the middle of the range, for the whole run

  // How much longer than measured the middle of the range is; -0.1: a tenth shorter.
  double error(double measured_s) const { return step_s.middle() / measured_s - 1; }
};

// The forecast for the hardware `on`: a name or a file; if empty, the GPU that `device` describes.
// Nothing if neither is known. `threads`: of a rank. Throws ConfigError.
std::optional<KeptForecast> forecast_to_keep(const run::PreparedRun& prepared,
                                             const std::string& on,
                                             const std::string& device,
                                             int ranks_per_node,
                                             int threads);

// "predicted on H100: 2.7 to 4.07 s a step, 61 min in all".
std::string words_before(const KeptForecast& forecast);
// "predicted on H100: 2.7 to 4.07 s a step; measured: 3.1 s, the forecast is 9% too long".
std::string words_after(const KeptForecast& forecast, double measured_s);
// {on, step_ms: [low, high], measured_step_ms, error}
Json to_json(const KeptForecast& forecast, double measured_s);

}  // namespace lockstep::forecast
