#include <algorithm>

#include "launcher/forecast/compare.h"
#include "runtime/base/error.h"

namespace lockstep::forecast {
namespace {

// The panels of time, of efficiency if `first` is not null, of cost and of energy, the latter only
// if all runs have it.
Chart chart_of(const std::vector<CandidateRun>& runs, const CandidateRun* first) {
  Chart chart;
  chart.over_ranks = first != nullptr;
  constexpr double kHour = 3600;
  ChartPanel step{"predicted s a step", true, {}}, run_time{"predicted h for the run", true, {}};
  ChartPanel efficiency{"predicted efficiency, %", false, {}};
  ChartPanel cost{"predicted cost of the run, $", false, {}};
  ChartPanel energy{"predicted energy of the run, kWh", false, {}};
  for (const CandidateRun& run : runs) {
    if (!run.forecast) continue;
    const std::string at =
        first != nullptr ? std::to_string(run.candidate.ranks) : name_of(run.candidate);
    const auto add = [&](ChartPanel& panel, const Range& value) {
      panel.points.push_back({at, value, run.fits});
    };
    add(step, run.forecast->step.step);
    add(run_time, run.forecast->run.total_s * (1 / kHour));
    if (first != nullptr) add(efficiency, Range::exactly(100 * efficiency_of(run, *first)));
    if (run.forecast->run.usd) add(cost, *run.forecast->run.usd);
    if (run.forecast->run.kwh) add(energy, *run.forecast->run.kwh);
  }
  if (step.points.empty()) throw ConfigError("--plot: nothing to draw, because no run is possible");
  chart.panels.push_back(std::move(first != nullptr ? step : run_time));
  if (first != nullptr) chart.panels.push_back(std::move(efficiency));
  if (!cost.points.empty()) chart.panels.push_back(std::move(cost));
  if (first == nullptr && !energy.points.empty()) chart.panels.push_back(std::move(energy));
  return chart;
}

}  // namespace

Chart sweep_chart(const std::vector<CandidateRun>& runs) {
  const auto first =
      std::ranges::find_if(runs, [](const CandidateRun& run) { return run.forecast.has_value(); });
  Chart chart = chart_of(runs, first == runs.end() ? nullptr : &*first);
  chart.title = "ranks on " + first->candidate.on + ": predicted, not measured";
  return chart;
}

Chart comparison_chart(const std::vector<CandidateRun>& runs) {
  Chart chart = chart_of(runs, nullptr);
  chart.title = "the run on each hardware: predicted, not measured";
  return chart;
}

}  // namespace lockstep::forecast
