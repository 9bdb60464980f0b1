#pragma once
// Draws forecasts with gnuplot: panels one above the other, all over the same ranks or devices.

#include <string>
#include <vector>

#include "launcher/forecast/range.h"

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
  bool over_ranks = true;  // lines over ranks; otherwise bars
  std::vector<ChartPanel> panels;
};

// A gnuplot script with its data, which draws `file`, the name of an SVG or PNG picture.
std::string script_of(const Chart& chart, const std::string& file);

// Writes the script beside the picture, as NAME.gp, and runs gnuplot. Throws IoError, and
// ConfigError if gnuplot is missing or fails.
void draw(const Chart& chart, const std::string& path);

}  // namespace lockstep::forecast
