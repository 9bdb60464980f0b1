#include "launcher/report/run_facts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "launcher/plots/ticks.h"
#include "runtime/base/text.h"

namespace lockstep::report {
namespace {

using launcher::MetricSeries;
using launcher::RunHistory;
using plots::number_text;

// A number of a record; NaN if it is missing.
double number_of(const Json& record, std::string_view name) {
  const Json* found = record.find(name);
  if (found == nullptr || found->is_null() || found->is_string() || found->is_structured())
    return plots::kNone;
  return found->get<double>();
}

std::string joules_text(double joules) {
  if (!std::isfinite(joules)) return "";
  return joules < 3.6e5 ? number_text(joules, 4) + " J" : number_text(joules / 3.6e6, 4) + " kWh";
}

// The newest total, which a running or killed run has in its metrics.
double total_joules(const RunHistory& run) {
  const double at_end = number_of(run.end, "energy_total_joules");
  if (std::isfinite(at_end)) return at_end;
  const MetricSeries& totals = run.metrics.of("energy_total_joules");
  return totals.empty() ? plots::kNone : totals.values.back();
}

// Finite values without the first ones.
std::vector<double> counted_values(const MetricSeries& series) {
  const size_t skipped = std::min<size_t>(series.values.size() / 4, 10);
  std::vector<double> values;
  for (size_t i = skipped; i < series.values.size(); ++i)
    if (std::isfinite(series.values[i])) values.push_back(series.values[i]);
  return values;
}

std::string unless_nan(double value, int digits, const std::string& unit) {
  return std::isfinite(value) ? number_text(value, digits) + unit : "";
}

void add_row(std::vector<Row>& rows, const std::string& name, const std::string& value) {
  if (!value.empty()) rows.push_back({name, value});
}

}  // namespace

std::string metric_name(const std::string& field) {
  const std::string name = field.starts_with("eval_") ? field.substr(5) : field;
  for (const auto& [key, text] : {std::pair("f1", "F1"),
                                  std::pair("auc", "AUC"),
                                  std::pair("top5_accuracy", "top-5 accuracy"),
                                  std::pair("matthews", "Matthews correlation"),
                                  std::pair("pearson", "Pearson correlation"),
                                  std::pair("spearman", "Spearman correlation"),
                                  std::pair("r_squared", "R squared"),
                                  std::pair("mean_absolute_error", "mean absolute error")})
    if (name == key) return text;
  return name;
}

std::string plain_text(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_structured()) return value.dump();
  if (value.kind() == Json::Kind::kObject) {
    std::string text;
    for (const std::string& name : value.names())
      append_item(text, name + ": " + plain_text(value.at(name)), "; ");
    return text;
  }
  std::vector<std::pair<std::string, int>> counts;
  for (const Json& item : value) {
    const std::string text = plain_text(item);
    const auto found = std::ranges::find(counts, text, &std::pair<std::string, int>::first);
    if (found == counts.end())
      counts.emplace_back(text, 1);
    else
      ++found->second;
  }
  std::string text;
  for (const auto& [item, count] : counts)
    append_item(text, count == 1 ? item : fmt::format("{} ({} x)", item, count));
  return text;
}

std::string text_of(const Json& record, std::string_view name) {
  const Json* found = record.find(name);
  return found == nullptr ? "" : plain_text(*found);
}

std::string newest_text(const RunHistory& run, std::string_view field, int digits) {
  const MetricSeries& series = run.metrics.of(field);
  return series.empty() ? "" : number_text(series.values.back(), digits);
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds)) return "";
  if (seconds < 60) return number_text(seconds, 3) + " s";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
  return fmt::format("{} d {} h", whole / 86400, whole % 86400 / 3600);
}

std::string bytes_text(double bytes) {
  if (!std::isfinite(bytes)) return "";
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return fmt::format("{} {}", number_text(bytes, 4), kUnits[unit]);
}

double usual_rate(const MetricSeries& series) {
  double times = 0, count = 0;
  for (const double rate : counted_values(series)) {
    if (!(rate > 0)) continue;
    times += 1 / rate;
    ++count;
  }
  return count > 0 ? count / times : plots::kNone;
}

double usual_value(const MetricSeries& series) {
  std::vector<double> values = counted_values(series);
  if (values.empty()) return plots::kNone;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

std::vector<Tile> results_of(const RunHistory& run) {
  const launcher::MetricsFile& metrics = run.metrics;
  const int64_t steps = run.steps();
  std::vector<Tile> tiles{
      {"steps",
       steps > 0 ? fmt::format("{} of {}", metrics.step(), steps) : std::to_string(metrics.step())},
      {"loss at the last step", newest_text(run, "loss")}};
  for (const std::string& field : metrics.fields()) {
    if (!field.starts_with("eval_")) continue;
    tiles.push_back({"evaluation: " + metric_name(field), newest_text(run, field)});
  }
  const double step_ms = usual_value(metrics.of("step_ms"));
  const bool tokens = !metrics.of("tokens_per_s").empty();
  tiles.push_back(
      {tokens ? "tokens/s" : "samples/s",
       unless_nan(usual_rate(metrics.of(tokens ? "tokens_per_s" : "samples_per_s")), 4, "")});
  tiles.push_back({"time of a step (median)", unless_nan(step_ms, 4, " ms")});
  tiles.push_back({"time of all steps", duration_text(run.seconds())});
  const MetricSeries& times = metrics.of("time");
  if (times.values.size() > 1)
    tiles.push_back({"from the first to the last step, by the clock",
                     duration_text(times.values.back() - times.values.front())});
  const double mfu = usual_value(metrics.of("mfu"));
  if (std::isfinite(mfu)) tiles.push_back({"MFU (median)", number_text(100 * mfu, 3) + "%"});
  tiles.push_back({"energy", joules_text(total_joules(run))});
  tiles.push_back(
      {"energy of a step", unless_nan(usual_value(metrics.of("joules_per_step")), 4, " J")});
  tiles.push_back(
      {"planned memory of a rank", bytes_text(number_of(run.environment, "planned_bytes"))});
  tiles.push_back({"peak memory of a rank", bytes_text(number_of(run.end, "peak_memory_bytes"))});
  tiles.push_back({"ranks", text_of(run.environment, "ranks")});
  tiles.push_back({"weights_hash", text_of(run.end, "weights_hash")});
  return tiles;
}

std::vector<Row> late_ranks(const RunHistory& run) {
  const MetricSeries &ranks = run.metrics.of("slowest_rank"),
                     &longer = run.metrics.of("slowest_longer_ms");
  struct Late {
    int64_t times = 0;
    double ms = 0;
  };
  std::map<int64_t, Late> by_rank;
  for (size_t i = 0; i < ranks.values.size() && i < longer.values.size(); ++i) {
    if (!std::isfinite(ranks.values[i]) || std::abs(ranks.values[i]) > 1e9) continue;
    Late& late = by_rank[static_cast<int64_t>(ranks.values[i])];
    ++late.times;
    late.ms += longer.values[i];
  }
  std::vector<std::pair<int64_t, Late>> sorted(by_rank.begin(), by_rank.end());
  std::ranges::stable_sort(sorted, {}, [](const auto& entry) { return -entry.second.ms; });
  constexpr size_t kShown = 16;
  if (sorted.size() > kShown) sorted.resize(kShown);
  const Json* hosts = run.environment.find("hosts");
  std::vector<Row> rows;
  for (const auto& [rank, late] : sorted) {
    const auto index = static_cast<size_t>(rank);
    rows.push_back(
        {fmt::format("rank {}", rank),
         rank >= 0 && hosts != nullptr && index < hosts->size() ? plain_text(hosts->at(index)) : "",
         std::to_string(late.times),
         fmt::format(
             "{:.1f}%",
             100.0 * static_cast<double>(late.times) / static_cast<double>(run.metrics.lines())),
         number_text(late.ms / static_cast<double>(late.times), 3)});
  }
  return rows;
}

std::vector<Row> memory_rows(const RunHistory& run) {
  std::vector<Row> rows;
  const Json* planned = run.environment.find("planned_memory");
  if (planned == nullptr || planned->kind() != Json::Kind::kObject) return rows;
  for (const std::string& name : planned->names())
    rows.push_back({name, bytes_text(number_of(*planned, name))});
  rows.push_back({"total", bytes_text(number_of(run.environment, "planned_bytes"))});
  return rows;
}

std::vector<Row> measured_memory_rows(const RunHistory& run) {
  std::vector<Row> rows;
  const auto highest = [&](std::string_view field) {
    double found = plots::kNone;
    for (const double value : run.metrics.of(field).values)
      if (!(value <= found)) found = value;
    return bytes_text(found);
  };
  add_row(rows,
          "peak memory of a rank's process, with program and libraries",
          bytes_text(number_of(run.end, "peak_memory_bytes")));
  add_row(rows, "memory used on a GPU, at most", highest("gpu_memory_used_bytes"));
  add_row(rows, "of it beside the plan", highest("gpu_memory_beside_plan_bytes"));
  return rows;
}

std::vector<Row> energy_rows(const RunHistory& run) {
  std::vector<Row> rows;
  add_row(rows, "total, with earlier starts", joules_text(total_joules(run)));
  add_row(rows, "CPUs, this start", joules_text(number_of(run.end, "energy_cpu_joules")));
  add_row(rows, "GPUs, this start", joules_text(number_of(run.end, "energy_gpu_joules")));
  add_row(rows,
          "of a step (median)",
          unless_nan(usual_value(run.metrics.of("joules_per_step")), 4, " J"));
  add_row(rows, "measured", text_of(run.end, "energy_sources"));
  add_row(rows, "not readable", text_of(run.end, "energy_not_readable"));
  return rows;
}

std::vector<Row> forecast_rows(const RunHistory& run) {
  std::vector<Row> rows;
  const double measured = usual_value(run.metrics.of("step_ms"));
  if (const Json* forecast = run.end.find("forecast")) {
    add_row(rows, "hardware of the forecast", text_of(*forecast, "on"));
    const Json* range = forecast->find("step_ms");
    if (range != nullptr && range->size() == 2)
      add_row(rows,
              "predicted time of a step",
              fmt::format("{} to {} ms",
                          number_text(range->at(size_t{0}).get<double>(), 4),
                          number_text(range->at(size_t{1}).get<double>(), 4)));
    add_row(rows,
            "measured (mean of the slowest rank)",
            unless_nan(number_of(*forecast, "measured_step_ms"), 4, " ms"));
    const double error = number_of(*forecast, "error");
    if (std::isfinite(error))
      add_row(rows,
              "error of the forecast",
              fmt::format(
                  "{:+.1f}%, the forecast is too {}", 100 * error, error >= 0 ? "long" : "short"));
    return rows;
  }
  const MetricSeries& predicted = run.metrics.of("predicted_step_ms");
  if (predicted.empty()) return rows;
  add_row(rows, "predicted time of a step", number_text(predicted.values.back(), 4) + " ms");
  add_row(rows, "measured so far (median)", unless_nan(measured, 4, " ms"));
  if (measured > 0)
    add_row(rows,
            "error of the forecast",
            fmt::format("{:+.1f}%", 100 * (predicted.values.back() / measured - 1)));
  return rows;
}

std::vector<Row> system_rows(const RunHistory& run) {
  const Json& environment = run.environment;
  std::vector<Row> rows;
  for (const auto& [name, title] : {std::pair("start_time", "start"),
                                    std::pair("hosts", "host of each rank"),
                                    std::pair("devices", "device of each rank"),
                                    std::pair("simd", "vector units"),
                                    std::pair("cpu_model", "CPU"),
                                    std::pair("cpu_cores", "CPUs that the process may use"),
                                    std::pair("ranks", "ranks"),
                                    std::pair("threads", "threads a rank"),
                                    std::pair("operating_system", "operating system"),
                                    std::pair("lockstep_version", "Lockstep"),
                                    std::pair("git_revision", "revision"),
                                    std::pair("compiler", "compiler"),
                                    std::pair("libraries", "libraries")})
    add_row(rows, title, text_of(environment, name));
  add_row(rows, "memory of the host", bytes_text(number_of(environment, "memory_bytes")));
  std::string command;
  if (const Json* words = environment.find("command_line"))
    if (words->kind() == Json::Kind::kArray)
      for (const Json& word : *words) append_item(command, shell_word(plain_text(word)), " ");
  add_row(rows, "command line", command);
  return rows;
}

}  // namespace lockstep::report
