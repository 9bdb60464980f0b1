#pragma once
// Pictures of forecasts: panels one above the other, all over the same ranks or devices.

#include <string>
#include <vector>

#include "launcher/forecast/range.h"
#include "launcher/plots/picture.h"

namespace lockstep::forecast {

struct ChartPoint {
  std::string at;  // a number of ranks, or the name of devices
  Range value;
  bool fits = true;  // otherwise it is circled
};

struct ChartPanel {
  std::string label;  // of the y axis
  bool logarithmic = false;
  std::vector<ChartPoint> points;
};

struct Chart {
  std::string title;
  std::string note = {};   // below the picture
  bool over_ranks = true;  // lines over ranks; otherwise bars
  std::vector<ChartPanel> panels;
};

// Each point at the middle of its range, which is its error bar.
plots::Picture picture_of(const Chart& chart);

}  // namespace lockstep::forecast
