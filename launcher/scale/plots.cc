#include "launcher/scale/plots.h"

#include <fmt/core.h>

#include <algorithm>

#include "launcher/plots/ticks.h"
#include "runtime/base/text.h"

namespace lockstep::scale {
namespace {

using plots::number_text;
using plots::Panel;
using plots::Picture;
using plots::Point;
using plots::Series;

constexpr const char* kRing = "more threads than CPUs";

double rate_at(const ScaleRow& row, double step_ms) {
  return static_cast<double>(row.world.global_batch) / step_ms * 1000;
}

// "Xeon Gold 6230; 2 CPUs of this host; cpu; FP32; Lockstep 0.9.0; 2026-01-31T12:00:00Z".
std::string note_of(const Report& report) {
  std::string note;
  const auto add = [&](const char* key, const std::string& before, const std::string& after) {
    const auto fact = std::ranges::find(report.facts, key, &Fact::key);
    if (fact == report.facts.end() || fact->value.is_null()) return;
    const std::string value =
        fact->value.is_string() ? fact->value.get<std::string>() : fact->value.dump();
    if (!value.empty()) append_item(note, before + value + after, "; ");
  };
  add("cpu_model", "", "");
  add("cpus", "", " CPUs of this host");
  add("device", "device ", "");
  add("threads", "threads a rank: ", "");
  add("precision", "", "");
  add("transport", "between ranks: ", "");
  add("lockstep_version", "Lockstep ", "");
  add("git_revision", "revision ", "");
  add("date", "", "");
  return note;
}

// A panel over the numbers of ranks.
Panel over_ranks(const Report& report, const std::string& label) {
  Panel panel;
  panel.x = {.label = "ranks", .logarithmic = true};
  for (const ScaleRow& row : report.modes[0].rows) panel.x.ticks.push_back(row.world.ranks);
  panel.y.label = label;
  panel.ring = kRing;
  return panel;
}

Picture picture_of(const Report& report, const std::string& title, Panel panel) {
  return {.title = heading_of(report) + ": " + title,
          .note = note_of(report),
          .panels = {std::move(panel)}};
}

// Error bars reach from the fastest to the slowest repeat.
Picture throughput(const Report& report) {
  Panel panel = over_ranks(report, "samples/s; bars: slowest and fastest run");
  panel.y.logarithmic = true;
  panel.height = 300;
  int colour = 0;
  for (const ModeReport& mode : report.modes) {
    const std::string name = name_of(mode.mode);
    Series ideal{.name = "ideal " + name, .colour = colour, .dashed = true, .markers = false};
    Series measured{.name = name, .colour = colour};
    Series predicted{.name = "predicted " + name, .colour = colour + 2, .line = false};
    for (const ScaleRow& row : mode.rows) {
      const double x = row.world.ranks;
      ideal.points.push_back({.x = x, .y = row.ideal_samples_per_s});
      measured.points.push_back({.x = x,
                                 .y = row.samples_per_s,
                                 .low = rate_at(row, row.slowest_ms),
                                 .high = rate_at(row, row.fastest_ms),
                                 .label = number_text(row.samples_per_s, 3),
                                 .ringed = row.oversubscribed});
      if (row.predicted_ms() > 0)
        predicted.points.push_back({.x = x,
                                    .y = rate_at(row, row.predicted_ms()),
                                    .low = rate_at(row, row.predicted_high_ms),
                                    .high = rate_at(row, row.predicted_low_ms)});
    }
    panel.series.push_back(std::move(ideal));
    panel.series.push_back(std::move(measured));
    if (!predicted.points.empty()) panel.series.push_back(std::move(predicted));
    ++colour;
  }
  return picture_of(report, "throughput", std::move(panel));
}

Picture efficiency(const Report& report) {
  Panel panel = over_ranks(report, "% of ideal; bars: slowest and fastest run");
  panel.y.from_zero = true;
  panel.y.high = 100;
  panel.height = 240;
  Series ideal{.name = "ideal", .colour = 7, .dashed = true, .markers = false};
  for (const double ranks : panel.x.ticks) ideal.points.push_back({.x = ranks, .y = 100});
  panel.series.push_back(std::move(ideal));
  int colour = 0;
  for (const ModeReport& mode : report.modes) {
    Series series{.name = name_of(mode.mode), .colour = colour++};
    for (const ScaleRow& row : mode.rows) {
      const double percent = 100 * row.efficiency;
      series.points.push_back({.x = static_cast<double>(row.world.ranks),
                               .y = percent,
                               .low = percent * row.step_ms / row.slowest_ms,
                               .high = percent * row.step_ms / row.fastest_ms,
                               .label = number_text(percent, 3),
                               .ringed = row.oversubscribed});
    }
    panel.series.push_back(std::move(series));
  }
  return picture_of(report, "efficiency", std::move(panel));
}

// One bar for each world size; gains are below zero. A star marks more threads than CPUs.
Picture lost_time(const Report& report) {
  Panel panel{.kind = plots::PanelKind::kStackedBars};
  panel.height = 260;
  panel.y.label = "ms a step; below zero: gains";
  panel.x.label = "ranks";
  for (const Part part : kAllParts)
    panel.series.push_back(
        {.name = title_of(part), .colour = static_cast<int>(panel.series.size())});
  for (const ModeReport& mode : report.modes)
    for (const ScaleRow& row : mode.rows) {
      if (row.oversubscribed) panel.x.label = fmt::format("ranks; *: {}", kRing);
      const auto x = static_cast<double>(panel.categories.size());
      panel.categories.push_back(fmt::format(
          "{} {}{}", name_of(mode.mode), row.world.ranks, row.oversubscribed ? "*" : ""));
      for (size_t i = 0; i < kParts; ++i)
        panel.series[i].points.push_back({.x = x, .y = row.lost[i]});
    }
  return picture_of(report, "time beyond the ideal step", std::move(panel));
}

}  // namespace

std::vector<Picture> make_pictures(const Report& report) {
  return {throughput(report), efficiency(report), lost_time(report)};
}

void draw(const std::vector<Picture>& pictures, const std::filesystem::path& folder) {
  for (size_t i = 0; i < pictures.size(); ++i)
    plots::write_picture(pictures[i], folder / fmt::format("{}.svg", kPictures.at(i)));
}

}  // namespace lockstep::scale
