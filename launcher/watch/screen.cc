#include "launcher/watch/screen.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <string_view>
#include <utility>

#include "launcher/watch/line_chart.h"
#include "runtime/base/text.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/config/task.h"
#include "runtime/metrics/progress.h"

namespace lockstep::watch {
namespace {

using launcher::MetricSeries;
using launcher::RunHistory;
using launcher::RunState;
using metrics::format_duration;
using metrics::short_number;

constexpr int kLabel = 10;                    // columns
constexpr double kWindowSeconds = 60;         // for the pace and for waits
constexpr size_t kSpeedLines = 50;            // for the speed
constexpr double kSilentSeconds = 5;          // at least, before a run counts as silent
constexpr double kSilentSteps = 5;            // likewise
constexpr int kMinChart = 3, kMaxChart = 12;  // rows

enum class Color { kNone, kBold, kGreen, kYellow, kRed };

class Screen {
 public:
  explicit Screen(const ScreenOptions& options) : options_(options) {}

  void line(const std::string& text, Color color = Color::kNone) {
    lines_.push_back(painted(clipped(text, options_.columns), color));
  }
  // A label and what belongs to it, on as many lines as are needed. Empty items are left out.
  void row(const std::string& label, const std::vector<std::string>& items) {
    std::string text;
    bool first = true;
    const auto end_line = [&] {
      if (text.empty()) return;
      line(fmt::format("{:{}}{}", first ? label : "", kLabel, text));
      first = false;
      text.clear();
    };
    for (const std::string& item : items) {
      if (item.empty()) continue;
      const int length = kLabel + characters(text) + 2 + characters(item);
      if (!text.empty() && length > options_.columns) end_line();
      append_item(text, item, "  ");
    }
    end_line();
  }
  size_t size() const { return lines_.size(); }
  std::vector<std::string>& lines() { return lines_; }

 private:
  static int characters(std::string_view text) {
    return static_cast<int>(
        std::ranges::count_if(text, [](char c) { return (c & '\xc0') != '\x80'; }));
  }
  static std::string clipped(const std::string& text, int columns) {
    int count = 0;
    for (size_t i = 0; i < text.size(); ++i)
      if ((text[i] & '\xc0') != '\x80' && ++count > columns) return text.substr(0, i);
    return text;
  }
  std::string painted(const std::string& text, Color color) const {
    if (!options_.colors || color == Color::kNone) return text;
    const char* code = color == Color::kBold    ? "1"
                       : color == Color::kGreen ? "32"
                       : color == Color::kRed   ? "31"
                                                : "33";
    return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
  }

  ScreenOptions options_;
  std::vector<std::string> lines_;
};

std::string percent(double share) { return fmt::format("{:.0f}%", 100 * share); }

// "14:05:09", and the date if it is another day.
std::string clock_text(double time, double now) {
  const auto parts_of = [](double seconds) {
    const auto whole = static_cast<std::time_t>(seconds);
    std::tm parts{};
    ::localtime_r(&whole, &parts);
    return parts;
  };
  const std::tm then = parts_of(time), today = parts_of(now);
  const bool same_day = then.tm_yday == today.tm_yday && then.tm_year == today.tm_year;
  char text[32];
  return {text, std::strftime(text, sizeof(text), same_day ? "%H:%M:%S" : "%b %d %H:%M", &then)};
}

// When a file was written, in seconds since 1970; 0: it is not there.
double written_at(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return 0;
  return static_cast<double>(status.st_mtim.tv_sec) +
         1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
}

std::string ago(double time, double now) {
  return format_duration(1000 * std::max(0.0, now - time)) + " ago";
}

// The index in the series `time`, which has a value, of the first line of the last minute.
size_t window_begin(const RunHistory& run) {
  const MetricSeries& times = run.metrics.of("time");
  size_t begin = times.values.size();
  while (begin > 0 && times.values.back() - times.values[begin - 1] <= kWindowSeconds) --begin;
  return begin;
}

// Wall-clock seconds from one step to the next, with evaluations and checkpoints; 0: unknown.
double pace_s(const RunHistory& run) {
  const MetricSeries& times = run.metrics.of("time");
  if (times.empty()) return 0;
  const size_t begin = window_begin(run), last = times.values.size() - 1;
  const auto steps = static_cast<double>(times.steps[last] - times.steps[begin]);
  if (steps > 0) return (times.values[last] - times.values[begin]) / steps;
  const MetricSeries& step_ms = run.metrics.of("step_ms");  // slower than a step a minute
  return step_ms.empty() ? 0 : step_ms.values.back() / 1000;
}

// The mean of a rate over the newest lines, whose work is equal; NaN: unknown.
double mean_rate(const MetricSeries& series) {
  const size_t count = std::min(kSpeedLines, series.values.size());
  double sum = 0;
  for (size_t i = series.values.size() - count; i < series.values.size(); ++i)
    sum += 1 / series.values[i];
  return static_cast<double>(count) / sum;
}

double mean_of(const MetricSeries& series) {
  const size_t count = std::min(kSpeedLines, series.values.size());
  double sum = 0;
  for (size_t i = series.values.size() - count; i < series.values.size(); ++i)
    sum += series.values[i];
  return sum / static_cast<double>(count);
}

void add_state(Screen& screen,
               const RunHistory& run,
               const FlightMoment* rank_0,
               const ScreenOptions& options) {
  std::string text = run.state_text(), more;
  Color color = Color::kGreen;
  if (run.state() == RunState::kStopped) color = Color::kRed;
  if (run.state() == RunState::kRunning) {
    const double sign =
        std::max(written_at(run.folder / "metrics.jsonl"), written_at(run.folder / "writer.lock"));
    const double silent_s = options.now - sign;
    if (rank_0 != nullptr && rank_0->phase != FlightPhase::kTraining) more = name_of(rank_0->phase);
    if (silent_s > std::max(kSilentSeconds, kSilentSteps * pace_s(run))) {
      append_item(more, fmt::format("silent for {}", format_duration(1000 * silent_s)));
      color = Color::kYellow;
    }
  }
  if (!more.empty() && static_cast<int>(text.size() + 2 + more.size()) <= options.columns)
    append_item(text, std::exchange(more, ""));
  screen.line(text, color);
  if (!more.empty()) screen.line(more, color);
}

void add_bar(Screen& screen, const RunHistory& run, const ScreenOptions& options) {
  const int64_t step = run.metrics.step(), steps = run.steps();
  if (steps == 0) return screen.row("step", {std::to_string(step)});
  const double done = std::clamp(static_cast<double>(step) / static_cast<double>(steps), 0.0, 1.0);
  const std::string numbers = fmt::format("{}/{}  {:3.0f}%", step, steps, 100 * done);
  const int width = std::min(options.columns - kLabel - static_cast<int>(numbers.size()) - 4, 60);
  std::string bar;
  if (width >= 5) {
    const int filled = static_cast<int>(done * width);
    for (int i = 0; i < width; ++i) bar += i >= filled ? " " : options.utf8 ? "█" : "=";
    bar = "[" + bar + "]";
  }
  screen.row("step", {numbers, bar});
}

void add_time(Screen& screen, const RunHistory& run, const ScreenOptions& options) {
  const MetricSeries& times = run.metrics.of("time");
  const double pace = pace_s(run), now = options.now;
  std::vector<std::string> items = {format_duration(1000 * run.seconds()) + " of steps"};
  if (run.state() == RunState::kEnded) {
    if (!times.empty()) items.push_back("last step " + clock_text(times.values.back(), now));
  } else if (pace > 0 && run.steps() > 0) {
    const double left = pace * static_cast<double>(run.steps() - run.metrics.step());
    items.push_back(format_duration(1000 * left) + " left");
    if (run.state() == RunState::kRunning) items.push_back("ends " + clock_text(now + left, now));
  }
  screen.row("time", items);
}

void add_speed(Screen& screen, const RunHistory& run) {
  const auto rate = [&](const char* field, const char* unit) {
    const MetricSeries& series = run.metrics.of(field);
    return series.empty() ? "" : short_number(mean_rate(series)) + unit;
  };
  const MetricSeries &step_ms = run.metrics.of("step_ms"), &mfu = run.metrics.of("mfu");
  if (step_ms.empty()) return;
  const double measured = mean_of(step_ms);
  screen.row("speed",
             {rate("samples_per_s", " samples/s"),
              rate("tokens_per_s", " tokens/s"),
              fmt::format("{:.4g} ms a step", measured),
              mfu.empty() ? "" : fmt::format("MFU {:.2g}%", 100 * mean_of(mfu))});
  const auto predicted = run.metrics.newest("predicted_step_ms");
  if (predicted && measured > 0)
    screen.row("forecast",
               {fmt::format("{:.4g} ms a step", *predicted),
                fmt::format("{:+.0f}% beside the measured", 100 * (*predicted / measured - 1))});
}

// Where a step's time goes on rank 0, and which rank the others wait for.
void add_phases(Screen& screen, const RunHistory& run) {
  const double step_ms = mean_of(run.metrics.of("step_ms"));
  if (!(step_ms > 0)) return;
  std::vector<std::string> items;
  for (const auto& [field, name] : {std::pair("compute_ms", "compute"),
                                    std::pair("comm_exposed_ms", "exchange"),
                                    std::pair("data_wait_ms", "data"),
                                    std::pair("optimizer_ms", "optimizer")})
    if (const MetricSeries& series = run.metrics.of(field); !series.empty())
      items.push_back(fmt::format("{} {}", name, percent(mean_of(series) / step_ms)));
  screen.row("of a step", items);
  const MetricSeries &ranks = run.metrics.of("slowest_rank"),
                     &longer = run.metrics.of("slowest_longer_ms"),
                     &all = run.metrics.of("step_ms");
  if (ranks.empty()) return;
  const MetricSeries& times = run.metrics.of("time");
  const int64_t first_step = times.empty() ? 0 : times.steps[window_begin(run)];
  double window_ms = 0;
  for (size_t i = all.steps.size(); i > 0 && all.steps[i - 1] >= first_step; --i)
    window_ms += all.values[i - 1];
  std::map<int64_t, double> longer_ms;  // by rank
  for (size_t i = ranks.steps.size(); i > 0 && ranks.steps[i - 1] >= first_step; --i)
    longer_ms[static_cast<int64_t>(ranks.values[i - 1])] += longer.values[i - 1];
  const auto slowest =
      std::ranges::max_element(longer_ms, {}, [](const auto& rank) { return rank.second; });
  if (slowest == longer_ms.end()) return;
  screen.row("waits",
             {fmt::format("rank {} is slowest", slowest->first),
              fmt::format("others wait {} of the time", percent(slowest->second / window_ms))});
}

// The field of the metric by which a run chooses its best checkpoint: "eval_loss".
std::string best_field(EvalConfig::Metric metric) {
  std::string name = lockstep::name_of(metric);
  std::ranges::transform(name, name.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  return "eval_" + name;
}

void add_evaluation(Screen& screen, const RunHistory& run) {
  const MetricSeries& losses = run.metrics.of("eval_loss");
  if (losses.empty()) return;
  std::vector<std::string> items = {fmt::format("step {}", losses.steps.back())};
  for (const std::string& field : run.metrics.fields()) {
    const MetricSeries& series = run.metrics.of(field);
    if (field.starts_with("eval_") && series.steps.back() == losses.steps.back())
      items.push_back(fmt::format("{} {:.4f}", field.substr(5), series.values.back()));
  }
  screen.row("eval", items);
  if (!run.config) return;
  const EvalConfig::Metric metric = run.config->eval.best;
  const MetricSeries& series = run.metrics.of(best_field(metric));
  if (series.empty()) return;
  const auto best = config::smaller_is_better(metric) ? std::ranges::min_element(series.values)
                                                      : std::ranges::max_element(series.values);
  screen.row(
      "best",
      {fmt::format("step {}", series.steps[static_cast<size_t>(best - series.values.begin())]),
       fmt::format("{} {:.4f}", best_field(metric).substr(5), *best)});
}

void add_checkpoints(Screen& screen, const RunHistory& run, const ScreenOptions& options) {
  if (run.checkpoints.empty()) return screen.row("saved", {"no checkpoint"});
  const int64_t newest = run.checkpoints.back();
  const double time = written_at(run.folder / "checkpoints" / checkpoint::checkpoint_name(newest) /
                                 "state.textproto");
  screen.row("saved",
             {fmt::format("step {}", newest),
              time > 0 ? ago(time, options.now) : "",
              run.best_checkpoint ? fmt::format("best: step {}", *run.best_checkpoint) : "",
              counted(run.checkpoints.size(), "checkpoint")});
}

std::string bytes_text(double bytes) {
  return bytes < 0x1p30 ? fmt::format("{:.1f} MiB", bytes / 0x1p20)
                        : fmt::format("{:.2f} GiB", bytes / 0x1p30);
}

// The newest value of a field that not every line has.
std::optional<double> latest(const RunHistory& run, const char* field) {
  const MetricSeries& series = run.metrics.of(field);
  return series.empty() ? std::nullopt : std::optional(series.values.back());
}

void add_memory_and_energy(Screen& screen, const RunHistory& run) {
  std::vector<std::string> memory;
  if (const Json* planned = run.environment.find("planned_bytes"))
    memory.push_back(bytes_text(planned->get<double>()) + " a rank by the plan");
  if (const auto used = latest(run, "gpu_memory_used_bytes"))
    memory.push_back(bytes_text(*used) + " used on a GPU");
  screen.row("memory", memory);
  std::vector<std::string> energy;
  if (const auto total = latest(run, "energy_total_joules"))
    energy.push_back(*total < 3.6e5 ? fmt::format("{:.4g} J", *total)
                                    : fmt::format("{:.4g} kWh", *total / 3.6e6));
  if (const auto step = latest(run, "joules_per_step"))
    energy.push_back(fmt::format("{:.4g} J a step", *step));
  if (const auto power = latest(run, "gpu_power_w"))
    energy.push_back(fmt::format("GPUs {:.4g} W", *power));
  screen.row("energy", energy);
}

void add_starts(Screen& screen, const RunHistory& run) {
  if (run.failed_starts.empty()) return;
  const launcher::FailedStart& newest = run.failed_starts.back();
  screen.row("restarts",
             {counted(newest.number, "failed start"),
              fmt::format("the newest lost {}", counted(newest.steps_lost, "step")),
              newest.reason});
}

// The curve of the loss, with its highest and lowest value beside it.
std::vector<std::string> chart_of(const RunHistory& run, int rows, const ScreenOptions& options) {
  const std::vector<double>& losses = run.metrics.of("loss").values;
  if (losses.size() < 2 || rows < kMinChart || options.columns < 2 * kLabel) return {};
  auto [lines, low, high] =
      line_chart(losses, {options.columns - kLabel, std::min(rows, kMaxChart), options.utf8});
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string label = i == 0                  ? fmt::format("{:.4g}", high)
                              : i + 1 == lines.size() ? fmt::format("{:.4g}", low)
                                                      : "";
    lines[i] = fmt::format("{:>{}} ", label, kLabel - 1) + lines[i];
  }
  return lines;
}

}  // namespace

std::vector<std::string> screen_of(const RunHistory& run,
                                   const FlightMoment* rank_0,
                                   const ScreenOptions& options) {
  Screen screen(options);
  screen.line(fmt::format("{}  {}", run.name(), escape_controls(run.folder.string())),
              Color::kBold);
  add_state(screen, run, rank_0, options);
  add_bar(screen, run, options);
  add_time(screen, run, options);
  const auto newest = [&](const char* field, const char* format) {
    const auto value = run.metrics.newest(field);
    return value ? fmt::format(fmt::runtime(format), *value) : "";
  };
  screen.row("loss",
             {newest("loss", "{:.6g}"),
              newest("lr", "lr {:.3g}"),
              newest("grad_norm", "gradient {:.3g}")});
  const size_t chart_at = screen.size();
  add_speed(screen, run);
  add_phases(screen, run);
  add_evaluation(screen, run);
  add_checkpoints(screen, run, options);
  add_memory_and_energy(screen, run);
  add_starts(screen, run);
  std::vector<std::string>& lines = screen.lines();
  const int used = static_cast<int>(lines.size());
  const std::vector<std::string> chart =
      chart_of(run, options.rows == 0 ? kMaxChart / 2 : options.rows - used, options);
  lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(chart_at), chart.begin(), chart.end());
  if (options.rows > 0 && static_cast<int>(lines.size()) > options.rows)
    lines.resize(static_cast<size_t>(options.rows));
  return lines;
}

}  // namespace lockstep::watch
