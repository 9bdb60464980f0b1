#include "launcher/report/charts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "launcher/report/run_facts.h"
#include "launcher/scale/report.h"

namespace lockstep::report {
namespace {

using launcher::MetricSeries;
using plots::Panel;
using plots::Picture;
using plots::Point;
using plots::Series;

constexpr size_t kColumns = 400, kMeans = 100;
constexpr double kWidth = 560;

std::string named(const Runs& runs, size_t i, const std::string& what) {
  if (runs.size() == 1) return what;
  return what.empty() ? runs[i].name : runs[i].name + ": " + what;
}

Picture picture_of(const std::string& title, Panel panel) {
  return {.title = title, .panels = {std::move(panel)}, .width = kWidth};
}

// A panel over all steps of the runs.
Panel over_steps(const Runs& runs, const std::string& label) {
  Panel panel;
  panel.x.label = "step";
  panel.y.label = label;
  for (const NamedRun& run : runs) {
    const std::vector<int64_t>& steps = run.run->metrics.of("step").steps;
    if (steps.empty()) continue;
    const auto first = static_cast<double>(steps.front()), last = static_cast<double>(steps.back());
    panel.x.low = std::min(panel.x.low.value_or(first), first);
    panel.x.high = std::max(panel.x.high.value_or(last), last);
  }
  return panel;
}

// How a curve is smoothed.
enum class Smooth { kNo, kMeans, kRates };

// Adds the field of each run that has it: as it is and, if it is long, its means over it.
void add_curves(Panel& panel,
                const Runs& runs,
                const std::string& field,
                const std::string& what,
                Smooth smooth) {
  for (size_t i = 0; i < runs.size(); ++i) {
    const MetricSeries& values = runs[i].run->metrics.of(field);
    if (values.empty()) continue;
    const int colour = static_cast<int>(i);
    std::vector<Point> means;
    if (smooth != Smooth::kNo) means = means_of(values, kMeans, smooth == Smooth::kRates);
    Series series{.name = means.empty() ? named(runs, i, what) : "",
                  .colour = colour,
                  .points = points_of(values),
                  .markers = values.steps.size() == 1,
                  .faint = !means.empty()};
    panel.series.push_back(std::move(series));
    if (means.empty()) continue;
    const size_t of = (values.steps.size() + kMeans - 1) / kMeans;
    panel.series.push_back(
        {.name = named(runs, i, fmt::format("{}means of {}", what.empty() ? "" : what + ", ", of)),
         .colour = colour,
         .points = means,
         .markers = false});
  }
}

// Values of evaluations, which are few.
void add_evaluations(
    Panel& panel, const Runs& runs, const std::string& field, const std::string& what, int colour) {
  for (size_t i = 0; i < runs.size(); ++i) {
    const MetricSeries& values = runs[i].run->metrics.of(field);
    if (values.empty()) continue;
    panel.series.push_back({.name = named(runs, i, what),
                            .colour = colour + static_cast<int>(i),
                            .points = points_of(values),
                            .dashed = true,
                            .markers = values.steps.size() <= 60});
  }
}

void add_best(Panel& panel, const Runs& runs) {
  for (size_t i = 0; i < runs.size(); ++i)
    if (const auto best = runs[i].run->best_checkpoint)
      panel.marks.push_back({static_cast<double>(*best), named(runs, i, "best checkpoint")});
}

bool any_has(const Runs& runs, const std::string& field) {
  return std::ranges::any_of(
      runs, [&](const NamedRun& run) { return !run.run->metrics.of(field).empty(); });
}

bool all_have(const Runs& runs, const std::string& field) {
  return std::ranges::all_of(
      runs, [&](const NamedRun& run) { return !run.run->metrics.of(field).empty(); });
}

// One picture for a field, if any run has it.
void add_field(std::vector<Picture>& pictures,
               const Runs& runs,
               const std::string& field,
               const std::string& title,
               const std::string& unit,
               Smooth smooth = Smooth::kMeans) {
  if (!any_has(runs, field)) return;
  Panel panel = over_steps(runs, unit);
  add_curves(panel, runs, field, "", smooth);
  pictures.push_back(picture_of(title, std::move(panel)));
}

}  // namespace

std::vector<Point> points_of(const MetricSeries& series) {
  std::vector<Point> points;
  points.reserve(series.steps.size());
  for (size_t i = 0; i < series.steps.size(); ++i)
    points.push_back({.x = static_cast<double>(series.steps[i]), .y = series.values[i]});
  return plots::thinned(points, kColumns);
}

std::vector<Point> means_of(const MetricSeries& series, size_t count, bool rates) {
  std::vector<Point> means;
  const size_t size = series.steps.size();
  if (size < 3 * count) return means;
  const size_t of = (size + count - 1) / count;
  for (size_t begin = 0; begin < size; begin += of) {
    const size_t end = std::min(size, begin + of);
    double sum = 0, steps = 0, finite = 0;
    for (size_t i = begin; i < end; ++i) {
      steps += static_cast<double>(series.steps[i]);
      if (!std::isfinite(series.values[i])) continue;
      sum += rates ? 1 / series.values[i] : series.values[i];
      ++finite;
    }
    means.push_back({.x = steps / static_cast<double>(end - begin),
                     .y = finite == 0 ? plots::kNone
                          : rates     ? finite / sum
                                      : sum / finite});
  }
  return means;
}

std::vector<Picture> learning_pictures(const Runs& runs) {
  Panel loss = over_steps(runs, "");
  add_curves(loss, runs, "loss", "training", Smooth::kMeans);
  add_evaluations(loss, runs, "eval_loss", "evaluation", static_cast<int>(runs.size()));
  add_best(loss, runs);
  std::vector<Picture> pictures{picture_of("Loss", std::move(loss))};
  std::set<std::string> fields;
  for (const NamedRun& run : runs)
    for (const std::string& field : run.run->metrics.fields())
      if (field.starts_with("eval_") && field != "eval_loss") fields.insert(field);
  for (const std::string& field : fields) {
    const std::string name = metric_name(field);
    Panel panel = over_steps(runs, "");
    add_evaluations(panel, runs, field, "", 0);
    for (Series& series : panel.series) series.dashed = false;
    add_best(panel, runs);
    pictures.push_back(picture_of("Evaluation: " + name, std::move(panel)));
  }
  return pictures;
}

std::vector<Picture> optimizer_pictures(const Runs& runs) {
  std::vector<Picture> pictures;
  add_field(pictures, runs, "lr", "Learning rate", "", Smooth::kNo);
  add_field(pictures, runs, "grad_norm", "Norm of the gradient", "before clipping");
  add_field(pictures, runs, "loss_scale", "Loss scale", "", Smooth::kNo);
  return pictures;
}

std::vector<Picture> speed_pictures(const Runs& runs) {
  std::vector<Picture> pictures;
  const bool tokens = all_have(runs, "tokens_per_s");
  add_field(pictures,
            runs,
            tokens ? "tokens_per_s" : "samples_per_s",
            "Throughput",
            tokens ? "tokens/s" : "samples/s",
            Smooth::kRates);
  for (Picture& picture : pictures) picture.panels[0].y.from_zero = true;
  if (!any_has(runs, "predicted_step_ms")) return pictures;
  Panel panel = over_steps(runs, "ms");
  panel.y.from_zero = true;
  add_curves(panel, runs, "step_ms", "measured", Smooth::kMeans);
  add_evaluations(panel, runs, "predicted_step_ms", "forecast", static_cast<int>(runs.size()));
  for (Series& series : panel.series)
    if (series.dashed) series.markers = false;
  pictures.push_back(picture_of("Time of a step and its forecast", std::move(panel)));
  return pictures;
}

Picture phase_picture(const NamedRun& run) {
  constexpr size_t kParts = 40;
  const launcher::MetricsFile& metrics = run.run->metrics;
  const MetricSeries& step_ms = metrics.of("step_ms");
  const size_t size = step_ms.steps.size(), of = (size + kParts - 1) / kParts;
  Panel panel{.kind = plots::PanelKind::kStackedBars};
  panel.x.label = of > 1 ? fmt::format("step, means of {}", of) : "step";
  panel.y.label = "ms";
  const scale::Part order[] = {scale::Part::kCompute,
                               scale::Part::kExchange,
                               scale::Part::kStragglers,
                               scale::Part::kDataWait,
                               scale::Part::kOptimizer,
                               scale::Part::kGaps};
  for (const scale::Part part : order)
    panel.series.push_back(
        {.name = part == scale::Part::kCompute ? "forward and backward" : scale::title_of(part),
         .colour = static_cast<int>(panel.series.size())});
  for (size_t begin = 0; begin < size; begin += of) {
    const size_t end = std::min(size, begin + of);
    train::RankTimes times;
    for (const train::RankMean& mean : train::kRankMeans) {
      const MetricSeries& values = metrics.of(mean.name);
      if (values.steps.size() != size) continue;  // an old run without the field
      for (size_t i = begin; i < end; ++i)
        times.*mean.value += values.values[i] / static_cast<double>(end - begin);
    }
    const scale::Parts parts = scale::parts_of(times);
    const auto x = static_cast<double>(panel.categories.size());
    panel.categories.push_back(std::to_string(step_ms.steps[end - 1]));
    for (size_t i = 0; i < std::size(order); ++i)
      panel.series[i].points.push_back({.x = x, .y = std::max(0.0, at(parts, order[i]))});
  }
  return picture_of("Time of a step by phase" + (run.name.empty() ? "" : ": " + run.name),
                    std::move(panel));
}

std::vector<Picture> device_pictures(const Runs& runs) {
  std::vector<Picture> pictures;
  add_field(pictures, runs, "joules_per_step", "Energy of a step", "J, of CPUs and GPUs");
  add_field(pictures, runs, "gpu_power_w", "Power of all GPUs", "W");
  add_field(pictures, runs, "gpu_clock_mhz_min", "Lowest clock of a GPU", "MHz");
  add_field(pictures, runs, "gpu_temperature_c_max", "Highest temperature of a GPU", "°C");
  return pictures;
}

Picture timeline_picture(const TimelineSummary& summary) {
  Panel panel{.kind = plots::PanelKind::kStackedBars};
  panel.y.label = "% of the steps";
  panel.x.label = "rank";
  panel.series = {{.name = "forward and backward", .colour = 0},
                  {.name = "waits for other ranks", .colour = 1},
                  {.name = "update, data and the rest", .colour = 4}};
  for (const auto& [rank, times] : summary) {
    if (times.step_ms <= 0) continue;
    const auto x = static_cast<double>(panel.categories.size());
    panel.categories.push_back(std::to_string(rank));
    const double compute = 100 * (times.passes_ms - times.pass_waits_ms) / times.step_ms,
                 waits = 100 * times.waits_ms / times.step_ms;
    panel.series[0].points.push_back({.x = x, .y = compute});
    panel.series[1].points.push_back({.x = x, .y = waits});
    panel.series[2].points.push_back({.x = x, .y = std::max(0.0, 100 - compute - waits)});
  }
  return picture_of("How each rank spends its steps", std::move(panel));
}

}  // namespace lockstep::report
