#include "launcher/forecast/kept_forecast.h"

#include <fmt/core.h>

#include <cmath>

#include "launcher/forecast/forecast_text.h"
#include "launcher/forecast/hardware_option.h"

namespace lockstep::forecast {

std::optional<KeptForecast> forecast_to_keep(const run::PreparedRun& prepared,
                                             const std::string& on,
                                             const std::string& device,
                                             int ranks_per_node,
                                             int threads) {
  Hardware hardware;
  if (!on.empty()) {
    hardware = launcher::planned_hardware("--on", on).hardware;
  } else if (const Hardware* gpu = config::find_gpu(device)) {
    hardware = *gpu;
  }
  const bool gpu = hardware.kind == Hardware::Kind::kGpu;
  // A forecast for another kind of hardware than this would say nothing of this run.
  if (hardware.name.empty() || gpu != prepared.ops->separate_memory) return std::nullopt;
  Place place;
  place.hardware = &hardware;
  place.ranks_per_node = ranks_per_node;
  place.threads = threads;
  if (!hardware.link.empty()) place.link = &config::find_link(hardware, hardware.link);
  if (!hardware.network.empty()) place.network = &config::find_link(hardware, hardware.network);
  const StepForecast step = forecast_step(prepared, place);
  return KeptForecast{hardware.name,
                      step.step,
                      step.step.middle() * static_cast<double>(prepared.config.train.steps)};
}

std::string words_before(const KeptForecast& forecast) {
  return fmt::format("predicted on {}: {} a step, {} in all",
                     forecast.on,
                     seconds_text(forecast.step_s),
                     seconds_text(Range::exactly(forecast.run_s)));
}

std::string words_after(const KeptForecast& forecast, double measured_s) {
  const double error = forecast.error(measured_s);
  return fmt::format("predicted on {}: {} a step; measured: {}, the forecast is {:.3g}% too {}",
                     forecast.on,
                     seconds_text(forecast.step_s),
                     seconds_text(Range::exactly(measured_s)),
                     100 * std::abs(error),
                     error < 0 ? "short" : "long");
}

Json to_json(const KeptForecast& forecast, double measured_s) {
  return Json::object(
      {{"on", forecast.on},
       {"step_ms",
        Json::array({Json(1e3 * forecast.step_s.low), Json(1e3 * forecast.step_s.high)})},
       {"measured_step_ms", 1e3 * measured_s},
       {"error", forecast.error(measured_s)}});
}

}  // namespace lockstep::forecast
