#include "launcher/forecast/forecast_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "launcher/forecast/timed_run.h"
#include "runtime/base/text.h"

namespace lockstep::forecast {
namespace {

// "3.4", "41,200", "2.34 million".
std::string number_text(double value) {
  if (value >= 1e6) return fmt::format("{:.3g} million", value / 1e6);
  if (value >= 1000) {
    // Three digits are known at most.
    const double unit = std::pow(10, std::floor(std::log10(value)) - 2);
    const auto whole = static_cast<int64_t>(std::round(std::round(value / unit) * unit));
    return fmt::format("{},{:03}", whole / 1000, whole % 1000);
  }
  return fmt::format("{:.3g}", value);
}

std::string bytes_text(double bytes) {
  constexpr double kMiB = 1024.0 * 1024;
  return bytes < 1024 * kMiB ? fmt::format("{:.3g} MiB", bytes / kMiB)
                             : fmt::format("{:.3g} GiB", bytes / kMiB / 1024);
}

void line(const std::string& name, const std::string& text) {
  fmt::print("  {:<12} {}\n", name, text);
}

double share(const Range& part, const Range& whole) {
  return 100 * part.middle() / std::max(whole.middle(), 1e-30);
}

// "linear_backward (48%), linear (20%); 3% is exposed exchange".
std::string limits_text(const StepForecast& step) {
  constexpr size_t kNamed = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kNamed, step.ops.size()); ++i)
    append_item(text,
                fmt::format("{} {:.0f}%", step.ops[i].name, share(step.ops[i].seconds, step.step)));
  if (step.loading.high >= 0.05 * step.step.high)
    append_item(text, fmt::format("reading data {:.0f}%", share(step.loading, step.step)));
  if (step.exchange.high > 0)
    text += share(step.exposed, step.step) < 0.5
                ? "; the exchange is hidden"
                : fmt::format("; exposed exchange {:.0f}%", share(step.exposed, step.step));
  return text;
}

std::string checkpoints_text(const RunForecast& run) {
  std::string text = fmt::format("{} of {}", run.checkpoints, bytes_text(run.checkpoint_bytes));
  if (run.checkpoints == 0) return "none";
  text += fmt::format(
      ", {} kept ({})", run.kept, bytes_text(run.checkpoint_bytes * static_cast<double>(run.kept)));
  if (run.save_s) text += ", saved in " + seconds_text(*run.save_s);
  if (run.load_s) text += ", loaded in " + seconds_text(*run.load_s);
  if (!run.save_s) text += "; the disk's rate is unknown";
  return text;
}

std::string cost_text(const RunForecast& run) {
  std::string text =
      "$" + text_of(*run.usd) +
      fmt::format(" at ${:.4g} an hour and node ({})", run.usd_per_hour, run.price_from);
  if (run.spot_usd)
    text += fmt::format("; ${} at the spot price of ${:.4g}{}",
                        text_of(*run.spot_usd),
                        run.spot_usd_per_hour,
                        run.interrupted ? ", with interruptions" : "");
  return text;
}

Json to_json(const Range& range) { return Json::array({Json(range.low), Json(range.high)}); }

const char* basis_text(FigureSource::Basis basis) {
  switch (basis) {
    case FigureSource::Basis::kSpec: return "specification";
    case FigureSource::Basis::kMeasured: return "measured";
    case FigureSource::Basis::kPublished: return "published";
    case FigureSource::Basis::kAssumed: return "assumed";
  }
  return "";
}

void explain_step(const StepForecast& step) {
  const auto row = [&](const std::string& name, const Range& seconds, const char* basis) {
    fmt::print("  {:<34}{:>22}{:>6.1f}%  {}\n",
               name,
               seconds_text(seconds),
               share(seconds, step.step),
               basis);
  };
  fmt::print("\npredicted for a step:\n");
  for (const ForecastPart& part : step.ops)
    row(part.name, part.seconds, part.measured ? "from measured ops" : "from peak rates");
  row("sums of gradients, and the rest", step.sums, "");
  row("update", step.update, "");
  row("exchange, hidden or not", step.exchange, "");
  row("  not hidden", step.exposed, "");
  row("slower ranks", step.stragglers, "");
  if (step.loading.high > 0)
    row("reading and decoding data", step.loading, "from some samples, read here");
  fmt::print("  the least time of the ops, at peak rates: {}\n",
             seconds_text(Range::exactly(step.least_seconds)));
}

// What the GPU's kernels do, by kind of op.
void explain_kernels(const StepForecast& step) {
  constexpr double kTera = 1e12, kGiga = 1e9;
  cuda::KernelWork all;
  for (const ForecastPart& part : step.ops) all += part.kernels;
  if (all.launches == 0) return;
  fmt::print("\ncounted for a step:\n  {:<34}{:>10}{:>12}{:>22}{:>22}\n",
             "kernels",
             "launches",
             "GB moved",
             "TFLOP, tensor cores",
             "TFLOP, other units");
  const auto row = [](const std::string& name, const cuda::KernelWork& work) {
    fmt::print("  {:<34}{:>10}{:>12.2f}{:>22.2f}{:>22.2f}\n",
               name,
               work.launches,
               work.bytes / kGiga,
               work.tensor_flops / kTera,
               work.fma_flops / kTera);
  };
  for (const ForecastPart& part : step.ops) row(part.name, part.kernels);
  row("all ops", all);
  row("sums of lanes", step.lane_sums);
}

void explain_products(const StepForecast& step) {
  constexpr size_t kPrinted = 8;
  if (step.products.empty()) return;
  fmt::print("  {:<44}{:>10}{:>18}\n",
             "products and convolutions (m x n x k)",
             "a step",
             "least ms together");
  for (size_t i = 0; i < std::min(kPrinted, step.products.size()); ++i) {
    const ForecastProduct& each = step.products[i];
    const Product& product = each.product;
    fmt::print("    {:<42}{:>10}{:>18.4g}\n",
               fmt::format("{} x {} x {}{}",
                           product.m,
                           product.n,
                           product.k,
                           product.groups > 1 ? fmt::format(", {} groups", product.groups) : ""),
               each.count,
               each.least_seconds * static_cast<double>(each.count) * 1e3);
  }
  if (step.products.size() > kPrinted)
    fmt::print("    and {} other sizes\n", step.products.size() - kPrinted);
}

void explain_sources(const Place& place) {
  fmt::print("figures of {} ({}):\n", place.hardware->name, place.hardware->product);
  for (const FigureSource& source : place.hardware->sources)
    fmt::print("  {}: {}; {}, {}\n",
               basis_text(source.basis),
               joined(source.figures),
               source.from,
               source.date);
  for (const Link* link : {place.link, place.network})
    if (link != nullptr)
      fmt::print("  {}: {:g} GB/s, {:g} us; {}{}\n",
                 link->name,
                 link->gbytes_per_s,
                 link->latency_us,
                 link->from,
                 link->date.empty() ? "" : ", " + link->date);
}

void explain_width(const Place& place, const StepForecast& step, bool replayed) {
  fmt::print("why a range:\n");
  if (replayed)
    fmt::print(
        "  {:.0f}% of the work is moved from a measured run: 3% for repeats, and the ranges of the "
        "predictions for both places\n",
        100 * step.measured_share);
  else if (step.measured_share > 0)
    fmt::print(
        "  {:.0f}% of the work is scaled from measured ops: 3% for repeats, and 3% for each "
        "doubling of size or threads away from them\n",
        100 * step.measured_share);
  if (step.measured_share < 1) {
    const Efficiency& shares = efficiency_of(*place.hardware);
    const auto percent = [](const Range& range) { return text_of(range * 100) + "%"; };
    fmt::print(
        "  {:.0f}% of the work is not measured there, so shares of the peak are assumed: products "
        "{}, convolutions {}, attention {}, memory {}, and {} us an op\n",
        100 * (1 - step.measured_share),
        percent(shares.large_products),
        percent(shares.convolutions),
        percent(shares.attention),
        percent(shares.memory),
        text_of(shares.overhead_us));
  }
  fmt::print("  ranks differ by {}% of a step (standard deviation), and all wait for the slowest\n",
             text_of(place.spread * 100));
  if (step.loading.high > 0)
    fmt::print(
        "  data may be read at 70 to 150% of the time that it takes here; with a GPU by 8 threads, "
        "unless data.decode_threads is set\n");
  else
    fmt::print("  not counted: reading the data, which are not images in files, or are not here\n");
}

}  // namespace

std::string text_of(const Range& range) {
  const std::string low = number_text(range.low), high = number_text(range.high);
  return low == high ? low : low + " to " + high;
}

std::string seconds_text(const Range& seconds) {
  struct Unit {
    double seconds, below;
    const char* name;
  };
  constexpr Unit kUnits[] = {{1e-3, 1, "ms"},
                             {1, 600, "s"},
                             {60, 36000, "min"},
                             {3600, 360000, "h"},
                             {86400, 1e30, "days"}};
  const auto* unit =
      std::ranges::find_if(kUnits, [&](const Unit& each) { return seconds.high < each.below; });
  return text_of(seconds * (1 / unit->seconds)) + " " + unit->name;
}

void print_forecast(const run::PreparedRun& prepared, const Forecast& forecast) {
  const auto& [place, step, run, fit, replayed] = forecast;
  const RunConfig& config = prepared.config;
  const auto samples = static_cast<double>(config.train.global_batch);
  const int64_t context = prepared.model->traits().context;
  const double units = samples * static_cast<double>(std::max<int64_t>(1, context));
  const int ranks = prepared.plan.sharding.topology.ranks();
  const bool gpu = place.hardware->kind == Hardware::Kind::kGpu;
  fmt::print("predicted, not measured: {} on {}{}\n",
             gpu ? fmt::format("{} x {}", ranks, place.hardware->name)
                 : fmt::format("{} of {} on {}",
                               counted(ranks, "rank"),
                               counted(place.threads, "thread"),
                               place.hardware->name),
             counted(run.nodes, "node"),
             fit.empty() ? "" : ": " + fit);
  line("a step",
       fmt::format("{}; {} {}/s; {}% of peak",
                   seconds_text(step.step),
                   text_of(rate_of(units, step.step)),
                   context > 0 ? "tokens" : "samples",
                   text_of(step.mfu * 100)));
  line("limited by", limits_text(step));
  line("whole run",
       fmt::format("{}: {} steps, {:.3g} epochs of {}",
                   seconds_text(run.total_s),
                   config.train.steps,
                   run.epochs,
                   seconds_text(run.epoch_s)));
  if (run.evaluations > 0)
    line("evaluation",
         fmt::format("{} times, {} in all", run.evaluations, seconds_text(run.evaluation_s)));
  line("checkpoints", checkpoints_text(run));
  if (run.usd) line("cost", cost_text(run));
  if (run.kwh)
    line("energy",
         fmt::format("{} kWh at up to {:.4g} W a node", text_of(*run.kwh), run.node_watts));
  if (run.restarts < 0)
    line("walltime", "too short: a job would end before its first step is saved");
  else if (run.restarts > 0)
    line("walltime",
         fmt::format("{}, and no step lost: each job saves before its end (train.walltime_minutes)",
                     counted(run.restarts, "restart")));
  if (run.interrupted)
    line("interrupted",
         fmt::format(
             "{} times, {:.3g} steps lost each; best a checkpoint every {} steps ({}), {}% "
             "longer",
             number_text(run.interrupted->count),
             run.interrupted->lost_steps_each,
             number_text(run.interrupted->every_steps),
             seconds_text(Range::exactly(run.interrupted->every_s)),
             text_of(Range{run.interrupted->factor.low - 1, run.interrupted->factor.high - 1} *
                     100)));
}

void explain_forecast(const run::PreparedRun& /*prepared*/, const Forecast& forecast) {
  explain_step(forecast.step);
  explain_kernels(forecast.step);
  explain_products(forecast.step);
  explain_sources(forecast.place);
  explain_width(forecast.place, forecast.step, forecast.replayed);
}

void add_forecast(const run::PreparedRun& prepared, const Forecast& forecast, Json& json) {
  const auto& [place, step, run, fit, replayed] = forecast;
  json["predicted_on"] = place.hardware->name;
  json["predicted_nodes"] = run.nodes;
  json["predicted_step_seconds"] = to_json(step.step);
  json["predicted_samples_per_s"] =
      to_json(rate_of(static_cast<double>(prepared.config.train.global_batch), step.step));
  json["predicted_mfu"] = to_json(step.mfu);
  json["predicted_compute_seconds"] = to_json(step.compute);
  for (const ForecastPart& part : step.ops)
    json["predicted_ops"].push_back(Json::object(
        {{"op", part.name}, {"seconds", to_json(part.seconds)}, {"measured", part.measured}}));
  const auto add_kernels = [&](const std::string& name, const cuda::KernelWork& work) {
    if (work.launches > 0)
      json["counted_kernels"].push_back(Json::object({{"op", name},
                                                      {"launches", work.launches},
                                                      {"bytes", work.bytes},
                                                      {"tensor_core_flops", work.tensor_flops},
                                                      {"fma_flops", work.fma_flops}}));
  };
  for (const ForecastPart& part : step.ops) add_kernels(part.name, part.kernels);
  add_kernels("sums of lanes", step.lane_sums);
  for (const ForecastProduct& each : step.products)
    json["predicted_products"].push_back(Json::object({{"name", each.name},
                                                       {"m", each.product.m},
                                                       {"n", each.product.n},
                                                       {"k", each.product.k},
                                                       {"groups", each.product.groups},
                                                       {"convolution", each.product.convolution},
                                                       {"count_per_step_per_rank", each.count},
                                                       {"least_seconds", each.least_seconds}}));
  json["predicted_sums_seconds"] = to_json(step.sums);
  json["predicted_update_seconds"] = to_json(step.update);
  json["predicted_exchange_seconds"] = to_json(step.exchange);
  json["predicted_exposed_seconds"] = to_json(step.exposed);
  json["predicted_straggler_seconds"] = to_json(step.stragglers);
  json["predicted_loading_seconds"] = to_json(step.loading);
  json["predicted_least_seconds"] = step.least_seconds;
  json["predicted_measured_share"] = step.measured_share;
  json["predicted_run_seconds"] = to_json(run.total_s);
  json["predicted_epoch_seconds"] = to_json(run.epoch_s);
  json["predicted_evaluation_seconds"] = to_json(run.evaluation_s);
  json["predicted_checkpoint_bytes"] = run.checkpoint_bytes;
  json["predicted_checkpoints"] = run.checkpoints;
  json["predicted_checkpoints_kept"] = run.kept;
  if (run.save_s) json["predicted_save_seconds"] = to_json(*run.save_s);
  if (run.load_s) json["predicted_load_seconds"] = to_json(*run.load_s);
  if (run.usd) {
    json["predicted_usd"] = to_json(*run.usd);
    json["usd_per_node_hour"] = run.usd_per_hour;
    json["price_from"] = run.price_from;
  }
  if (run.spot_usd) {
    json["predicted_spot_usd"] = to_json(*run.spot_usd);
    json["spot_usd_per_node_hour"] = run.spot_usd_per_hour;
  }
  if (run.kwh) json["predicted_kwh"] = to_json(*run.kwh);
  json["predicted_restarts"] = run.restarts;
  if (run.interrupted) {
    json["predicted_interruptions"] = run.interrupted->count;
    json["predicted_best_checkpoint_steps"] = run.interrupted->every_steps;
    json["predicted_interruption_factor"] = to_json(run.interrupted->factor);
  }
}

}  // namespace lockstep::forecast
