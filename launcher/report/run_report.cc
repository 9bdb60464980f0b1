#include "launcher/report/run_report.h"

#include <fmt/core.h>

#include <algorithm>

#include "launcher/plots/ticks.h"
#include "launcher/report/charts.h"
#include "launcher/report/comparison.h"
#include "launcher/report/page.h"
#include "launcher/report/run_facts.h"
#include "launcher/report/timeline_summary.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/metrics/environment.h"

namespace lockstep::report {
namespace {

using launcher::RunHistory;
using plots::number_text;

void require_metrics(const RunHistory& run) {
  if (run.metrics.lines() > 0) return;
  throw CheckpointError(
      "'{}': metrics.jsonl has no step yet; give the command again after the run's first step",
      run.folder.string());
}

void add_pictures(Page& page, const std::vector<plots::Picture>& pictures) {
  for (const plots::Picture& picture : pictures) page.picture(picture);
}

// The heading of a part of a section that is about one of the runs.
void name_run(Page& page, const Runs& runs, const NamedRun& run) {
  if (runs.size() > 1) page.paragraph("Run " + run.name + ":");
}

void add_state(Page& page, const NamedRun& named) {
  const RunHistory& run = *named.run;
  page.paragraph((named.name.empty() ? "" : "Run " + named.name + ": ") + run.state_text() + ".");
  if (run.metrics.damaged_lines() > 0)
    page.note(fmt::format("metrics.jsonl has {} that cannot be read; they are left out.",
                          counted(run.metrics.damaged_lines(), "line")));
  std::vector<Row> rows;
  for (const launcher::FailedStart& start : run.failed_starts)
    rows.push_back({std::to_string(start.number),
                    start.reason,
                    std::to_string(start.steps_lost),
                    duration_text(start.seconds_lost)});
  page.table({"failed start", "reason", "steps lost", "time lost"}, rows, 2);
}

void add_comparison(Page& page, const Runs& runs) {
  const RunHistory &a = *runs[0].run, &b = *runs[1].run;
  page.section("The two runs");
  page.paragraph(to_text(compare_losses(a.metrics.of("loss"), b.metrics.of("loss"))));
  std::vector<Row> rows;
  const std::vector<Tile> first = results_of(a), second = results_of(b);
  const auto value_in = [](const std::vector<Tile>& tiles, const std::string& name) {
    const auto found = std::ranges::find(tiles, name, &Tile::name);
    return found == tiles.end() ? "" : found->value;
  };
  for (const Tile& tile : first) {
    const std::string other = value_in(second, tile.name);
    if (!tile.value.empty() || !other.empty()) rows.push_back({tile.name, tile.value, other});
  }
  for (const Tile& tile : second)
    if (std::ranges::find(first, tile.name, &Tile::name) == first.end())
      rows.push_back({tile.name, "", tile.value});
  page.table({"result", runs[0].name, runs[1].name}, rows);
  const std::vector<Row> differences = config_differences(a, b);
  for (const NamedRun& run : runs)
    if (!run.run->config)
      page.note("Configs are not compared, because that of run " + run.name +
                " cannot be read: " + run.run->config_problem);
  if (a.config && b.config && differences.empty()) page.paragraph("The configs are equal.");
  page.table({"config field", runs[0].name, runs[1].name}, differences, 3);
}

void add_timeline(Page& page, const NamedRun& run) {
  const TimelineSummary summary = read_timeline_summary(run.run->folder / "timeline.json");
  if (summary.empty()) return;
  page.picture(timeline_picture(summary));
  std::vector<Row> rows;
  for (const auto& [rank, times] : summary) {
    const auto share = [&](double ms) {
      return times.step_ms > 0 ? fmt::format("{:.1f}%", 100 * ms / times.step_ms) : "";
    };
    rows.push_back(
        {times.name.empty() ? fmt::format("rank {}", rank) : times.name,
         std::to_string(times.steps),
         share(times.passes_ms - times.pass_waits_ms),
         share(times.waits_ms),
         share(times.transfer_ms),
         std::to_string(times.last),
         times.last > 0 ? number_text(times.behind_ms / static_cast<double>(times.last), 3) : ""});
  }
  page.table({"timeline",
              "steps",
              "forward and backward",
              "waits",
              "exchange under way",
              "came last",
              "mean ms behind the first"},
             rows);
  page.note(
      "Shares of the rank's steps. Exchanges go on while the rank computes; only waits cost time.");
}

void add_ranks(Page& page, const Runs& runs) {
  page.section("Ranks and their waits");
  for (const NamedRun& run : runs) {
    name_run(page, runs, run);
    const std::vector<Row> rows = late_ranks(*run.run);
    if (rows.empty() && text_of(run.run->environment, "ranks") == "1")
      page.paragraph("The run has one rank.");
    else if (rows.empty())
      page.paragraph("No rank worked longer than the others by more than 5% of a step.");
    page.table({"slowest", "host", "steps", "of all lines", "ms longer (mean)"}, rows, 2);
    add_timeline(page, run);
  }
}

// A section with a table for each run, and a sentence in place of an empty one.
template <typename Rows>
void add_facts(Page& page,
               const Runs& runs,
               const char* title,
               const Rows& rows_of,
               const char* otherwise,
               size_t left = 2) {
  page.section(title);
  for (const NamedRun& run : runs) {
    name_run(page, runs, run);
    const std::vector<Row> rows = rows_of(*run.run);
    if (rows.empty()) page.paragraph(otherwise);
    page.table({}, rows, left);
  }
}

void add_memory(Page& page, const Runs& runs) {
  add_facts(page, runs, "Memory", measured_memory_rows, "No measurement of memory is recorded.");
  for (const NamedRun& run : runs) {
    name_run(page, runs, run);
    const std::vector<Row> rows = memory_rows(*run.run);
    if (rows.empty()) page.paragraph("The plan of the memory is not recorded.");
    page.table({"planned, rank 0", "size"}, rows);
  }
}

void add_configs(Page& page, const Runs& runs) {
  for (const NamedRun& run : runs)
    page.details(
        runs.size() > 1 ? "The full config of run " + run.name : "The full config",
        run.run->config_text.empty() ? "config.textproto is missing" : run.run->config_text);
}

std::string path_of(const RunHistory& run) {
  return std::filesystem::absolute(run.folder).lexically_normal().string();
}

// Names for two runs: their folders' names or, if these are equal, their paths.
Runs named_runs(const RunHistory& run, const RunHistory* against) {
  const auto base = [](const RunHistory& of) {
    return std::filesystem::absolute(of.folder / "").parent_path().filename().string();
  };
  if (against == nullptr) return {{&run, ""}};
  const bool same = base(run) == base(*against);
  return {{&run, same ? run.folder.string() : base(run)},
          {against, same ? against->folder.string() : base(*against)}};
}

}  // namespace

std::string run_report(const RunHistory& run, const RunHistory* against) {
  require_metrics(run);
  if (against != nullptr) require_metrics(*against);
  const Runs runs = named_runs(run, against);
  try {
    Page page(run.name() + (against != nullptr ? " against " + against->name() : ""),
              fmt::format("{}{}; report of {}",
                          path_of(run),
                          against != nullptr ? " and " + path_of(*against) : "",
                          metrics::utc_now()));
    for (const NamedRun& each : runs) {
      add_state(page, each);
      std::vector<Tile> tiles = results_of(*each.run);
      std::erase_if(tiles, [](const Tile& tile) { return tile.value.empty(); });
      if (runs.size() == 1) page.tiles(tiles);
    }
    if (against != nullptr) add_comparison(page, runs);
    page.section("Learning");
    add_pictures(page, learning_pictures(runs));
    add_pictures(page, optimizer_pictures(runs));
    if (std::ranges::all_of(
            runs, [](const NamedRun& each) { return each.run->metrics.of("eval_loss").empty(); }))
      page.note("No evaluation is in metrics.jsonl.");
    page.section("Speed");
    add_pictures(page, speed_pictures(runs));
    for (const NamedRun& each : runs) page.picture(phase_picture(each));
    page.note(
        "Times are those of rank 0. \"exposed communication\" and \"stragglers\" are its waits "
        "for other ranks: for their messages, and for one that works longer.");
    add_ranks(page, runs);
    add_memory(page, runs);
    add_facts(page,
              runs,
              "Forecast",
              forecast_rows,
              "No forecast was made; train with --on NAME, the hardware, to have one.");
    add_facts(page, runs, "Energy", energy_rows, "No energy is recorded.");
    add_pictures(page, device_pictures(runs));
    add_facts(page, runs, "System", system_rows, "environment.json is missing.");
    add_configs(page, runs);
    return page.html();
  } catch (const JsonError& error) {
    throw CheckpointError("'{}': environment.json, end.json or timeline.json is damaged: {}",
                          run.folder.string(),
                          error.what());
  }
}

}  // namespace lockstep::report
