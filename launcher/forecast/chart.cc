#include "launcher/forecast/chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "launcher/processes/gnuplot.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/names.h"
#include "runtime/base/text.h"

namespace lockstep::forecast {
namespace {

constexpr int kWidth = 800, kPanelHeight = 320;

// A text for gnuplot, where a quotation mark within single ones is doubled.
std::string quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "''" : std::string(1, c);
  return quoted + "'";
}

// The columns x, its label, middle, low, high, and the middle again if the run does not fit.
std::string data_of(const Chart& chart, size_t panel) {
  std::string text = fmt::format("$panel{} << END\n", panel + 1);
  const std::vector<ChartPoint>& points = chart.panels[panel].points;
  for (size_t i = 0; i < points.size(); ++i) {
    const ChartPoint& point = points[i];
    std::string label = point.at;  // in data gnuplot accepts only double quotation marks
    std::ranges::replace(label, '"', '\'');
    text += fmt::format("{} \"{}\" {:.6g} {:.6g} {:.6g} {}\n",
                        chart.over_ranks ? point.at : std::to_string(i),
                        label,
                        point.value.middle(),
                        point.value.low,
                        point.value.high,
                        point.fits ? "NaN" : fmt::format("{:.6g}", point.value.middle()));
  }
  return text + "END\n";
}

std::string plot_of(const Chart& chart, size_t panel) {
  const std::string data = fmt::format("$panel{}", panel + 1);
  std::string plot =
      chart.over_ranks
          ? "plot " + data + " using 1:3:4:5 with yerrorlines lw 2 pt 7 notitle"
          : "plot " + data + " using 1:3:4:5:(0.6):xtic(2) with boxerrorbars lc 1 notitle";
  const bool misfits = std::ranges::any_of(chart.panels[panel].points,
                                           [](const ChartPoint& point) { return !point.fits; });
  if (misfits)
    plot += ", " + data + " using 1:6 with points pt 6 ps 2 lw 2 lc 'red' title 'does not fit'";
  return plot;
}

// The range is set, because gnuplot leaves out a tic at the end of a range that it chooses.
std::string axes_of(const Chart& chart) {
  if (!chart.over_ranks) return "set xtics rotate by -20\n";
  std::string tics;
  const std::vector<ChartPoint>& points = chart.panels.front().points;
  for (const ChartPoint& point : points) append_item(tics, point.at, ",");
  return fmt::format(
      "set xlabel 'ranks'\nset logscale x 2\nset xtics ({})\nset xrange [{}*0.9:{}*1.1]\n",
      tics,
      points.front().at,
      points.back().at);
}

}  // namespace

// noenhanced: otherwise gnuplot would print the letter after a '_' as a subscript.
std::string script_of(const Chart& chart, const std::string& file) {
  const int height = kPanelHeight * static_cast<int>(chart.panels.size());
  std::string script = "# gnuplot " + file + ".gp draws " + file + "\n";
  for (size_t i = 0; i < chart.panels.size(); ++i) script += data_of(chart, i);
  script += fmt::format("set terminal {} size {},{} noenhanced{}\nset output {}\n",
                        has_suffix(file, ".svg") ? "svg" : "pngcairo",
                        kWidth,
                        height,
                        has_suffix(file, ".svg") ? " background 'white'" : "",
                        quoted(file));
  script += fmt::format(
      "set style fill solid 0.85 border -1\nset grid ytics\nset key above\n"
      "set multiplot layout {},1 title {}\n{}",
      chart.panels.size(),
      quoted(chart.title),
      axes_of(chart));
  for (size_t i = 0; i < chart.panels.size(); ++i)
    script += fmt::format(
        "set ylabel {}\n{}\n{}{}\n",
        quoted(chart.panels[i].label),
        chart.panels[i].logarithmic ? "set logscale y\nset yrange [*:*]"
                                    : "unset logscale y\nset yrange [0:*]",
        chart.over_ranks ? ""
                         : fmt::format("set xrange [-0.6:{}]\n",
                                       static_cast<double>(chart.panels[i].points.size()) - 0.4),
        plot_of(chart, i));
  return script + "unset multiplot\n";
}

void draw(const Chart& chart, const std::string& path) {
  const std::filesystem::path picture = path;
  const std::filesystem::path script = path + ".gp", log = path + ".log";
  write_file_atomically(script, script_of(chart, picture.filename().string()));
  const std::string failed = launcher::run_gnuplot(script, log);
  if (!failed.empty()) throw ConfigError("--plot: {}; {} has the script", failed, script.string());
  std::error_code ignored;
  std::filesystem::remove(log, ignored);
}

}  // namespace lockstep::forecast
