#pragma once
// Pictures of figures: panels with lines or bars, one above the other. Drawn as SVG, in the style
// of pictures/*.svg, and written as CSV.

#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::plots {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

struct Point {
  double x = 0, y = 0;
  double low = kNone, high = kNone;  // ends of the error bar
  std::string label = {};            // beside the point, if there is room
  bool ringed = false;
};

struct Series {
  std::string name = {};  // in the legend; empty: not there
  int colour = 0;         // below kColours
  std::vector<Point> points = {};
  bool line = true, dashed = false, markers = true;
  bool faint = false;  // behind another one
  bool in_csv = true;
};

struct Axis {
  std::string label = {};
  bool logarithmic = false;
  std::vector<double> ticks = {};             // only these; empty: chosen
  bool from_zero = false;                     // of a linear axis
  std::optional<double> low = {}, high = {};  // limits that the data need not reach
};

// A vertical line.
struct Mark {
  double x = 0;
  std::string label;
};

enum class PanelKind { kLines, kBars, kStackedBars };

// With bars, x is the number of a category, from 0, and every series has a point for each.
// Stacked bars with negative values reach below zero.
struct Panel {
  PanelKind kind = PanelKind::kLines;
  Axis x = {}, y = {};
  std::vector<Series> series = {};
  std::vector<std::string> categories = {};
  std::vector<Mark> marks = {};
  std::string ring = {};  // what rings mean, in the legend
  double height = 210;    // of the plot itself
};

struct Picture {
  std::string title = {};
  std::string note = {};  // below: hardware, date
  std::vector<Panel> panels = {};
  double width = 760;
};

// The series with at most four points for each of `columns` equal parts of the range of x: the
// first, the lowest, the highest and the last. So no peak is lost. NaN, at which lines break, stays
// if a part has nothing else. x must increase.
std::vector<Point> thinned(const std::vector<Point>& points, size_t columns);

// The picture as SVG; `in_page`: for a page with kStyle.
std::string svg_of(const Picture& picture, bool in_page = false);

// A line for each point: panel, series, x (or category), y, low, high.
std::string csv_of(const Picture& picture);

// Writes the picture and, beside it, NAME.csv. Throws IoError.
void write_picture(const Picture& picture, const std::filesystem::path& svg);

}  // namespace lockstep::plots
