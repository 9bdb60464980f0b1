#include "launcher/scale/plots.h"

#include <fmt/core.h>

#include <algorithm>

#include "launcher/processes/gnuplot.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"

namespace lockstep::scale {
namespace {

// noenhanced: otherwise gnuplot would print the letter after a '_' as a subscript.
std::string script_for(const std::string& name,
                       const std::string& data,
                       const std::string& settings,
                       const std::string& plot) {
  return fmt::format(
      "# gnuplot {0}.gp draws {0}.svg and {0}.png\n"
      "{1}set style fill solid 0.85 border -1\n"
      "set grid ytics\n"
      "{2}\n"
      "set terminal svg size 800,500 noenhanced background 'white'\n"
      "set output '{0}.svg'\n"
      "{3}\n"
      "set terminal pngcairo size 800,500 noenhanced\n"
      "set output '{0}.png'\n"
      "{3}\n",
      name,
      data,
      settings,
      plot);
}

double predicted_rate(const ScaleRow& row) {
  return static_cast<double>(row.world.global_batch) / row.predicted_ms() * 1000;
}

bool has_forecast(const ModeReport& mode) {
  return std::ranges::any_of(mode.rows, [](const ScaleRow& row) { return row.predicted_ms() > 0; });
}

// One block of data for each mode, with the columns ranks, rate, ideal rate, efficiency in percent,
// whether there were more threads than CPUs, and the predicted rate, if any.
std::string rates_data(const Report& report) {
  std::string text;
  for (const ModeReport& mode : report.modes) {
    text += fmt::format("${} << END\n", name_of(mode.mode));
    for (const ScaleRow& row : mode.rows)
      text += fmt::format("{} {} {} {} {} {}\n",
                          row.world.ranks,
                          row.samples_per_s,
                          row.ideal_samples_per_s,
                          100 * row.efficiency,
                          row.oversubscribed ? 1 : 0,
                          row.predicted_ms() > 0 ? fmt::format("{}", predicted_rate(row)) : "NaN");
    text += "END\n";
  }
  return text;
}

bool oversubscribed(const ModeReport& mode) {
  return std::ranges::any_of(mode.rows, [](const ScaleRow& row) { return row.oversubscribed; });
}

// Returns text to append to a plot command. It circles the points with more threads than CPUs,
// which show how ranks share CPUs and not how they scale. `column` is the column of the data that
// is plotted.
std::string rings(const Report& report, int column) {
  std::string plot;
  for (const ModeReport& mode : report.modes) {
    if (!oversubscribed(mode)) continue;
    plot +=
        fmt::format(", ${} using 1:($5 == 1 ? ${} : NaN) with points pt 6 ps 2 lw 2 lc 'red' {}",
                    name_of(mode.mode),
                    column,
                    plot.empty() ? "title 'more threads than CPUs'" : "notitle");
  }
  return plot;
}

std::string on_ranks(const Report& report, const std::string& title) {
  std::string tics;
  for (const ScaleRow& row : report.modes[0].rows)
    append_item(tics, std::to_string(row.world.ranks), ",");
  // The name has no quotation marks: the config does not allow any.
  return fmt::format(
      "set title '{}: {}'\n"
      "set xlabel 'ranks'\n"
      "set logscale x 2\n"
      "set xtics ({})\n"
      "set key left top\n"
      "set yrange [0:*]\n",
      heading_of(report),
      title,
      tics);
}

Plot throughput(const Report& report) {
  std::string plot;
  int colour = 0;
  for (const ModeReport& mode : report.modes) {
    ++colour;
    plot += fmt::format(
        "{0}${1} using 1:2 with linespoints lw 2 pt 7 lc {2} title '{1}', "
        "${1} using 1:3 with lines dt 2 lc {2} title 'ideal {1}'",
        plot.empty() ? "plot " : ", ",
        name_of(mode.mode),
        colour);
    if (has_forecast(mode))
      plot += fmt::format(", ${0} using 1:6 with points pt 2 lc {1} title 'predicted {0}'",
                          name_of(mode.mode),
                          colour);
  }
  return {"throughput",
          script_for("throughput",
                     rates_data(report),
                     on_ranks(report, "throughput") + "set ylabel 'samples/s'\n",
                     plot + rings(report, 2))};
}

Plot efficiency(const Report& report) {
  std::string plot;
  int colour = 0;
  for (const ModeReport& mode : report.modes)
    plot += fmt::format("{0}${1} using 1:4 with linespoints lw 2 pt 7 lc {2} title '{1}'",
                        plot.empty() ? "plot 100 with lines dt 2 lc 'gray' title 'ideal', " : ", ",
                        name_of(mode.mode),
                        ++colour);
  return {"efficiency",
          script_for("efficiency",
                     rates_data(report),
                     on_ranks(report, "efficiency") +
                         "set ylabel '% of ideal'\nset key left bottom\nset yrange [0:110<*]\n",
                     plot + rings(report, 4))};
}

// One bar for each world size; gains are below zero. A star marks more threads than CPUs.
Plot lost_time(const Report& report) {
  const bool any = std::ranges::any_of(report.modes, oversubscribed);
  std::string data = "$lost << END\n", plot;
  for (const ModeReport& mode : report.modes)
    for (const ScaleRow& row : mode.rows) {
      // In data gnuplot accepts only double quotation marks.
      data += fmt::format(
          "\"{} {}{}\"", name_of(mode.mode), row.world.ranks, row.oversubscribed ? "*" : "");
      for (const double part : row.lost) data += fmt::format(" {}", part);
      data += "\n";
    }
  for (const Part part : kAllParts)
    plot += fmt::format("{}$lost using {}{} title '{}'",
                        plot.empty() ? "plot " : ", ",
                        static_cast<int>(part) + 2,
                        plot.empty() ? ":xtic(1)" : "",
                        title_of(part));
  return {"lost_time",
          script_for("lost_time",
                     data + "END\n",
                     fmt::format("set title '{}: time beyond the ideal step'\n"
                                 "set ylabel 'ms a step'\n"
                                 "set xlabel '{}'\n"
                                 "set xtics rotate by -30\n"
                                 "set style data histograms\n"
                                 "set style histogram rowstacked\n"
                                 "set boxwidth 0.6\n"
                                 "set xzeroaxis lt -1\n"
                                 "set key below\n",
                                 heading_of(report),
                                 any ? "ranks; *: more threads than CPUs" : "ranks"),
                     plot)};
}

}  // namespace

std::vector<Plot> make_plots(const Report& report) {
  return {throughput(report), efficiency(report), lost_time(report)};
}

std::string draw(const std::vector<Plot>& plots, const std::filesystem::path& folder) {
  for (const Plot& plot : plots) write_file_atomically(folder / (plot.name + ".gp"), plot.script);
  std::string failed;
  for (const Plot& plot : plots) {
    const std::string message =
        launcher::run_gnuplot(folder / (plot.name + ".gp"), folder / "runs" / (plot.name + ".log"));
    if (failed.empty()) failed = message;
  }
  return failed;
}

}  // namespace lockstep::scale
