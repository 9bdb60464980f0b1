#include "launcher/forecast/run_forecast.h"

#include <algorithm>
#include <cmath>

#include "launcher/forecast/timed_run.h"
#include "runtime/plan/moment_layout.h"
#include "runtime/train/evaluation/task_scores.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep::forecast {
namespace {

// From a restart to the first step, besides reading the checkpoint: assumed.
constexpr double kStart_s = 30;

// The ops of an evaluation graph, once.
Range evaluation_pass(const run::PreparedRun& prepared, const Place& place) {
  if (!prepared.graphs->evaluation) return {};
  const Arithmetic arithmetic = arithmetic_of(prepared);
  const OpTimes times(*place.hardware,
                      arithmetic,
                      {.ranks = place.ranks_per_node, .threads = place.threads},
                      place.known);
  Range seconds;
  const auto gpu = gpu_of(*place.hardware, arithmetic);
  for (const OpWork& work : work_of_run(prepared, *prepared.graphs->evaluation, gpu).works)
    seconds += times.time(work).seconds * static_cast<double>(work.count);
  return seconds;
}

void add_evaluations(const run::PreparedRun& prepared, const Place& place, RunForecast& run) {
  const RunConfig& config = prepared.config;
  if (config.eval.every == 0 || prepared.data->eval == nullptr) return;
  run.evaluations = (config.train.steps + config.eval.every - 1) / config.eval.every;
  const auto samples =
      static_cast<double>(train::evaluated_samples(config.eval, *prepared.data->eval));
  const double passes = std::ceil(samples / static_cast<double>(config.train.global_batch));
  run.evaluation_s =
      evaluation_pass(prepared, place) *
      (passes * prepared.plan.sharding.shares().most() * static_cast<double>(run.evaluations));
}

void add_checkpoints(const run::PreparedRun& prepared, const Place& place, RunForecast& run) {
  const CheckpointConfig& config = prepared.config.checkpoint;
  const plan::ParameterLayout& layout = prepared.plan.layout;
  const auto moments = static_cast<int64_t>(train::kept_arrays(prepared.config).size());
  int64_t left_out = 0;
  for (const collectives::Range& range :
       plan::ranges_without_last_moment(prepared.config.optimizer, layout))
    left_out += range.size();
  const auto& adafactor = prepared.plan.traffic.adafactor;
  run.checkpoint_bytes = static_cast<double>(layout.elements + moments * layout.trained() -
                                             left_out + (adafactor ? adafactor->averages : 0)) *
                         sizeof(float);
  const int64_t steps = prepared.config.train.steps;
  if (config.every > 0) run.checkpoints = steps / config.every;
  if (config.every_minutes > 0)
    run.checkpoints += static_cast<int64_t>(run.training_s.middle() / (60 * config.every_minutes));
  if (config.at_end && (config.every == 0 || steps % config.every != 0)) ++run.checkpoints;
  const bool best = config.keep_best && run.evaluations > 0;
  run.kept = std::min(run.checkpoints, config.keep_last) + (best ? 1 : 0);
  const auto at_rate = [&](double gbytes_per_s) -> std::optional<Range> {
    if (gbytes_per_s == 0) return std::nullopt;
    const double seconds = run.checkpoint_bytes / (gbytes_per_s * 1e9);
    return Range{seconds, 1.5 * seconds};  // others use the disk too
  };
  run.save_s = at_rate(place.hardware->disk_write_gbytes_per_s);
  run.load_s = at_rate(place.hardware->disk_read_gbytes_per_s);
  if (!run.save_s) return;
  // In the background a checkpoint costs a copy in memory; the last one is waited for.
  const double copy = run.checkpoint_bytes / prepared.plan.sharding.topology.ranks() / 5e9;
  run.waits_s = prepared.plan.memory.has_snapshot()
                    ? Range{copy, 2 * copy} * static_cast<double>(run.checkpoints) + *run.save_s
                    : *run.save_s * static_cast<double>(run.checkpoints);
}

void add_walltime(double walltime_s, RunForecast& run) {
  if (walltime_s == 0) return;
  const double lost = kStart_s + (run.load_s ? run.load_s->high : 0);
  const double useful = walltime_s - lost - (run.save_s ? run.save_s->high : 0);
  if (useful <= 0) {
    run.restarts = -1;  // no step would be done
    return;
  }
  run.restarts = static_cast<int64_t>(std::ceil(run.total_s.high / useful)) - 1;
  run.total_s += Range{lost, lost} * static_cast<double>(run.restarts);
}

void add_interruptions(double a_node_hour, const StepForecast& step, RunForecast& run) {
  if (a_node_hour == 0) return;
  Interruptions interrupted;
  const double mean_s = 3600 / (a_node_hour * run.nodes);
  // With an unknown disk: as long as ten steps.
  const double save = run.save_s ? run.save_s->middle() : 10 * step.step.middle();
  const double restart = kStart_s + (run.load_s ? run.load_s->middle() : save);
  interrupted.every_s = std::sqrt(2 * save * mean_s);
  interrupted.every_steps = std::max(1.0, std::round(interrupted.every_s / step.step.middle()));
  const double factor =
      1 + save / interrupted.every_s + (interrupted.every_s / 2 + restart) / mean_s;
  interrupted.factor = {1 + (factor - 1) * 0.7, 1 + (factor - 1) * 1.5};
  interrupted.lost_steps_each = interrupted.every_steps / 2;
  interrupted.count = run.total_s.middle() * factor / mean_s;
  run.total_s = {run.total_s.low * interrupted.factor.low,
                 run.total_s.high * interrupted.factor.high};
  run.interrupted = interrupted;
}

// The first offer of this market for the hardware. Files list the usual one first.
const Price* find_price(const Hardware& hardware, Price::Market market) {
  for (const std::vector<Price>* prices : {&hardware.prices, &config::known_prices()}) {
    for (const Price& price : *prices) {
      const bool same =
          price.hardware == hardware.name || (price.hardware.empty() && prices == &hardware.prices);
      if (same && price.market == market) return &price;
    }
  }
  return nullptr;
}

void add_cost(const Place& place, const RunTerms& terms, RunForecast& run) {
  const Hardware& hardware = *place.hardware;
  const bool gpu = hardware.kind == Hardware::Kind::kGpu;
  const double devices = gpu ? place.ranks_per_node : 1;
  const auto of_node = [&](const Price& price) {
    return price.usd_per_hour / static_cast<double>(price.devices) * devices;
  };
  const double node_hours = run.nodes / 3600.0;
  Range paid_s = run.uninterrupted_s;
  if (terms.usd_per_hour > 0) {
    run.usd_per_hour = terms.usd_per_hour;
    run.price_from = "--price";
    paid_s = run.total_s;
  } else if (const Price* price = find_price(hardware, Price::Market::kOnDemand)) {
    run.usd_per_hour = of_node(*price);
    run.price_from = price->provider + (price->instance.empty() ? "" : " " + price->instance) +
                     (price->region.empty() ? "" : " in " + price->region) + ", on demand, " +
                     price->date;
  }
  if (run.usd_per_hour > 0) run.usd = paid_s * (node_hours * run.usd_per_hour);
  if (const Price* spot = find_price(hardware, Price::Market::kSpot)) {
    run.spot_usd_per_hour = of_node(*spot);
    run.spot_usd = run.total_s * (node_hours * run.spot_usd_per_hour);
  }
  run.node_watts = terms.watts > 0 ? terms.watts
                   : hardware.watts > 0
                       ? hardware.watts * devices +
                             hardware.host_watts * devices / static_cast<double>(hardware.devices)
                       : 0;
  // Devices draw some 75% to all of their power limit.
  if (run.node_watts > 0)
    run.kwh =
        Range{run.total_s.low * 0.75, run.total_s.high} * (node_hours * run.node_watts / 1000);
}

}  // namespace

RunForecast forecast_run(const run::PreparedRun& prepared,
                         const Place& place,
                         const StepForecast& step,
                         const RunTerms& terms) {
  RunForecast run;
  const RunConfig& config = prepared.config;
  const int ranks = prepared.plan.sharding.topology.ranks();
  run.nodes = (ranks + place.ranks_per_node - 1) / place.ranks_per_node;
  run.training_s = step.step * static_cast<double>(config.train.steps);
  if (prepared.data->train != nullptr) {
    const auto samples = static_cast<double>(prepared.data->train->samples());
    const double steps = samples / static_cast<double>(config.train.global_batch);
    run.epoch_s = step.step * steps;
    run.epochs = static_cast<double>(config.train.steps) / std::max(steps, 1e-9);
  }
  add_evaluations(prepared, place, run);
  add_checkpoints(prepared, place, run);
  run.total_s = run.training_s + run.evaluation_s + run.waits_s;
  add_walltime(terms.walltime_s, run);
  run.uninterrupted_s = run.total_s;
  add_interruptions(terms.interruptions_h, step, run);
  add_cost(place, terms, run);
  return run;
}

}  // namespace lockstep::forecast
