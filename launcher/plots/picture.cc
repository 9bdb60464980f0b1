// A picture is drawn from its top to its bottom: the title, then each panel with its heading (the
// label of y), its legend, the plot and the labels of x, then the note. A legend has rows of its
// own above the plot, so that it never lies over lines.
#include "launcher/plots/picture.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "launcher/plots/plot_area.h"
#include "launcher/plots/svg.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"

namespace lockstep::plots {
namespace {

constexpr double kLeft = 10, kRow = 17, kTitleSize = 14, kSmall = 11;

// The lines of a text that is wrapped to a width.
std::vector<std::string> wrapped(const std::string& text, double width, double size) {
  std::vector<std::string> lines;
  for (const std::string& word : words_of(text)) {
    if (lines.empty() || text_width(lines.back() + " " + word, size) > width)
      lines.push_back(word);
    else
      lines.back() += " " + word;
  }
  return lines;
}

// One entry of a legend, drawn at the left of its name.
void draw_key(Svg& svg, const Panel& panel, const Series& series, double x, double y) {
  const std::string colour = std::to_string(series.colour);
  if (panel.kind != PanelKind::kLines) return svg.rect(x, y - 9, 10, 10, "f" + colour);
  if (series.line)
    svg.path(fmt::format("M{} {}h18", coordinate(x), coordinate(y - 4)),
             (series.faint ? "faint s" : "s") + colour,
             series.dashed ? "stroke-width=\"2\" stroke-dasharray=\"5 4\"" : "stroke-width=\"2\"");
  if (series.markers) svg.marker(series.colour, x + 9, y - 4, "f" + colour);
}

// Draws the legend's rows and returns how far down they reach.
double draw_legend(Svg& svg, const Panel& panel, double left, double right, double y) {
  const double key = panel.kind == PanelKind::kLines ? 24 : 15;
  constexpr double kGap = 16;
  double x = left;
  bool any = false;
  const auto place = [&](const std::string& name) {
    const double width = key + text_width(name, kSmall) + kGap;
    if (any && x + width > right) {
      x = left;
      y += kRow;
    }
    any = true;
    const double at = x;
    x += width;
    return at;
  };
  for (const Series& series : panel.series) {
    if (series.name.empty()) continue;
    const double at = place(series.name);
    draw_key(svg, panel, series, at, y + 12);
    svg.text(at + key, y + 12, series.name, "t", kSmall);
  }
  const bool ringed = std::ranges::any_of(panel.series, [](const Series& series) {
    return std::ranges::any_of(series.points, &Point::ringed);
  });
  if (ringed && !panel.ring.empty()) {
    const double at = place(panel.ring);
    svg.ring(at + 9, y + 8);
    svg.text(at + 24, y + 12, panel.ring, "t", kSmall);
  }
  return any ? y + kRow : y;
}

std::string csv_word(const std::string& word) {
  if (word.find_first_of(",\"\n") == std::string::npos) return word;
  std::string quoted = "\"";
  for (const char c : word) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string csv_number(double value) { return std::isnan(value) ? "" : fmt::format("{}", value); }

}  // namespace

std::vector<Point> thinned(const std::vector<Point>& points, size_t columns) {
  if (points.size() <= 4 * columns) return points;
  const double first = points.front().x, range = points.back().x - first;
  const auto column_of = [&](const Point& point) {
    return std::min(columns - 1,
                    static_cast<size_t>((point.x - first) / range * static_cast<double>(columns)));
  };
  std::vector<Point> kept;
  for (size_t begin = 0, end = 0; begin < points.size(); begin = end) {
    const size_t column = column_of(points[begin]);
    while (end < points.size() && column_of(points[end]) == column) ++end;
    size_t low = begin, high = begin;
    for (size_t i = begin; i < end; ++i) {
      if (std::isnan(points[i].y)) continue;
      if (!(points[i].y >= points[low].y)) low = i;
      if (!(points[i].y <= points[high].y)) high = i;
    }
    std::vector<size_t> chosen{begin, low, high, end - 1};
    std::ranges::sort(chosen);
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (const size_t i : chosen) kept.push_back(points[i]);
  }
  return kept;
}

std::string svg_of(const Picture& picture, bool in_page) {
  Svg svg;
  double y = 8;
  for (const std::string& line :
       wrapped(picture.title, (picture.width - 2 * kLeft) * 0.92, kTitleSize)) {
    svg.bold(kLeft, y + 14, line, kTitleSize);
    y += kRow + 3;
  }
  for (const Panel& panel : picture.panels) {
    const PlotArea area(panel, picture.width);
    y += 4;
    if (!panel.y.label.empty()) {
      svg.text(kLeft, y + 12, panel.y.label, "m", kSmall);
      y += kRow;
    }
    y = draw_legend(svg, panel, kLeft, picture.width - kLeft, y);
    y = area.draw(svg, y + (panel.marks.empty() ? 10 : 22), in_page);
  }
  for (const std::string& line : wrapped(picture.note, picture.width - 2 * kLeft, 10)) {
    svg.text(kLeft, y + 13, line, "m", 10);
    y += 14;
  }
  return svg_text(svg, picture.width, y + 8, picture.title, in_page);
}

std::string csv_of(const Picture& picture) {
  std::string text = "panel,series,x,y,low,high\n";
  for (const Panel& panel : picture.panels)
    for (const Series& series : panel.series) {
      if (!series.in_csv) continue;
      for (const Point& point : series.points) {
        const bool bars = panel.kind != PanelKind::kLines;
        text += fmt::format("{},{},{},{},{},{}\n",
                            csv_word(panel.y.label),
                            csv_word(series.name),
                            bars ? csv_word(panel.categories.at(static_cast<size_t>(point.x)))
                                 : csv_number(point.x),
                            csv_number(point.y),
                            csv_number(point.low),
                            csv_number(point.high));
      }
    }
  return text;
}

void write_picture(const Picture& picture, const std::filesystem::path& svg) {
  write_file_atomically(svg, svg_of(picture));
  std::filesystem::path csv = svg;
  write_file_atomically(csv.replace_extension(".csv"), csv_of(picture));
}

}  // namespace lockstep::plots
