#include "launcher/forecast/chart.h"

#include <cstdlib>

#include "launcher/plots/ticks.h"

namespace lockstep::forecast {

plots::Picture picture_of(const Chart& chart) {
  plots::Picture picture{.title = chart.title, .note = chart.note};
  for (const ChartPanel& of : chart.panels) {
    plots::Panel panel;
    panel.kind = chart.over_ranks ? plots::PanelKind::kLines : plots::PanelKind::kBars;
    panel.y = {.label = of.label, .logarithmic = of.logarithmic, .from_zero = !of.logarithmic};
    panel.ring = "does not fit";
    if (chart.over_ranks) panel.x = {.label = "ranks", .logarithmic = true};
    plots::Series series;
    for (const ChartPoint& point : of.points) {
      const double x = chart.over_ranks ? std::strtod(point.at.c_str(), nullptr)
                                        : static_cast<double>(series.points.size());
      series.points.push_back({.x = x,
                               .y = point.value.middle(),
                               .low = point.value.low,
                               .high = point.value.high,
                               .label = plots::number_text(point.value.middle(), 3),
                               .ringed = !point.fits});
      if (chart.over_ranks)
        panel.x.ticks.push_back(x);
      else
        panel.categories.push_back(point.at);
    }
    panel.series.push_back(std::move(series));
    picture.panels.push_back(std::move(panel));
  }
  return picture;
}

}  // namespace lockstep::forecast
