#include "launcher/run/train_result.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>

#include <optional>
#include <vector>

#include "collectives/agree/agreement.h"
#include "launcher/command_line/results.h"
#include "launcher/ranks/transport.h"
#include "launcher/run/summary.h"
#include "runtime/base/checksum.h"
#include "runtime/base/flight_recorder.h"
#include "runtime/base/log.h"
#include "runtime/base/streams.h"
#include "runtime/train/folder/run_end.h"
#include "runtime/train/gather_values.h"
#include "runtime/train/step/stop_signal.h"

namespace lockstep::launcher {
namespace {

Json to_json(const train::RankTimes& times) {
  Json json = Json::object({{"rank", times.rank}, {"host", times.host}, {"steps", times.steps}});
  for (const train::RankMean& mean : train::kRankMeans) json[mean.name] = times.*mean.value;
  return json;
}

// Adds what is known of a rank's device over the run.
void add_device(Json& rank, const train::DeviceReport& device) {
  const auto add = [&](const char* name, double value) {
    if (value >= 0) rank[name] = value;
  };
  add("gpu_clock_mhz_min", device.clock_mhz_min);
  add("gpu_clock_mhz_max", device.clock_mhz_max);
  add("gpu_power_w", device.power_w);
  add("gpu_temperature_c_max", device.temperature_c_max);
  add("gpu_energy_j", device.energy_j);
  if (!device.limits.empty()) rank["gpu_limits"] = device.limits;
}

// What a step exchanges.
Json exchange_json(const plan::Plan& plan, double bucket_mib) {
  Json json;
  json["bucket_mib"] = bucket_mib;
  json["buckets"] = plan.layout.buckets.size();
  json["largest_bucket_bytes"] =
      collectives::largest_bucket(plan.layout.buckets) * static_cast<int64_t>(sizeof(float));
  json["shares_memory"] = plan.sharding.topology.shares_memory;
  json["wire_bytes_per_step_per_rank"] = plan.traffic.wire_bytes;
  // Without a level of nodes the plan does not tell which of its ranks are on other nodes.
  if (plan.sharding.topology.nodes > 1)
    json["network_bytes_per_step_per_node"] =
        plan.traffic.network_bytes * plan.sharding.topology.per_node;
  return json;
}

Json to_json(const train::TrainResult& result,
             const train::RunContext& context,
             const std::optional<int64_t>& bad_records) {
  Json json;
  const std::string transport = name_of_transport(context.slices, context.plan.sharding.topology);
  if (!transport.empty()) json["transport"] = transport;
  json["step"] = result.step;
  if (result.loss) json["loss"] = *result.loss;
  if (result.evaluation) {
    train::each_metric(*result.evaluation,
                       context.model,
                       [&](const std::string& name, double value) { json[name] = value; });
  }
  if (result.best_metric) json["best_metric"] = *result.best_metric;
  if (result.best_metric) json["best_step"] = result.best_step;
  json["weights_hash"] = to_hex(result.weights_hash);
  json["train_seconds"] = result.train_seconds;
  train::add_energy(json, result.energy);
  for (const train::RankTimes& times : result.rank_times) {
    Json of_rank = to_json(times);
    const auto rank = static_cast<size_t>(times.rank);
    if (rank < result.devices.size()) add_device(of_rank, result.devices[rank]);
    json["ranks"].push_back(of_rank);
  }
  json["exchange"] = exchange_json(context.plan, context.config.comm.bucket_mib);
  json["preempted"] = result.preempted;
  json["early_stopped"] = result.early_stopped;
  json["failed_checkpoints"] = result.failed_checkpoints;
  json["checkpoint_stall_seconds"] = result.checkpoint_stall_seconds;
  json["skipped_steps"] = result.skipped_steps;
  if (bad_records) json["bad_records"] = *bad_records;
  json["run_dir"] = context.run_dir.string();
  return json;
}

std::string summary(const train::TrainResult& result, const train::RunContext& context) {
  if (!result.loss)
    return fmt::format("nothing left to do: the run is at step {} of {}{}",
                       result.step,
                       context.config.train.steps,
                       result.early_stopped ? ", stopped early" : "");
  std::string text = fmt::format(
      "{} at step {} of {} after {:.1f} s of training: loss {:.4f}",
      result.preempted ? "stopped on request" : (result.early_stopped ? "stopped early" : "done"),
      result.step,
      context.config.train.steps,
      result.train_seconds,
      *result.loss);
  if (result.evaluation) {
    text += fmt::format(", evaluation loss {:.4f}", result.evaluation->loss) +
            train::words_for(*result.evaluation, context.model);
  }
  if (result.best_metric && result.best_step != result.step)
    text += fmt::format(", best {} {:.4f} at step {}",
                        name_of(context.config.eval.best),
                        *result.best_metric,
                        result.best_step);
  return text + train::words_for(result.energy);
}

void print_summary(const train::TrainResult& result,
                   const train::RunContext& context,
                   const std::optional<int64_t>& bad_records) {
  const std::string text = summary(result, context) +
                           words_for_skipped(result.skipped_steps, context.config) +
                           words_for(bad_records),
                    hash = to_hex(result.weights_hash);
  log_record(text + ", weights_hash " + hash);
  const std::string devices = train::words_for(result.devices);
  if (!devices.empty()) log_record(devices);
  print_result(fmt::format("{}\n{}weights_hash {}\nrun folder   {}\n",
                           text,
                           devices.empty() ? "" : devices + "\n",
                           hash,
                           context.run_dir.string()));
}

// Of the rank that takes longest; 0: no step was measured.
double mean_step_s(const train::TrainResult& result) {
  double longest_ms = 0;
  for (const train::RankTimes& times : result.rank_times)
    if (times.steps > 0) longest_ms = std::max(longest_ms, times.step_ms);
  return longest_ms / 1000;
}

// The most memory that a rank's process had at once, with its program, its libraries and what it
// shares with others. All ranks together.
int64_t largest_peak_bytes(collectives::Communicator& communicator) {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const std::vector<int64_t> of_ranks =
      train::gather_values(communicator, int64_t{used.ru_maxrss} * 1024);
  return *std::ranges::max_element(of_ranks);
}

// Writes into the run folder how the run has ended. All ranks together.
void write_end(const train::TrainResult& result,
               const train::RunContext& context,
               const std::optional<int64_t>& bad_records,
               const Json& forecast) {
  const int64_t steps = context.config.train.steps;
  train::RunEnd::Reason reason = train::RunEnd::Reason::kLastStep;
  if (result.preempted)
    reason = train::RunEnd::Reason::kPreempted;
  else if (result.early_stopped)
    reason = train::RunEnd::Reason::kEarlyStopping;
  else if (result.step < steps)
    reason = train::RunEnd::Reason::kMaxSteps;
  std::vector<int> signalled;
  if (result.preempted) {
    const auto of_ranks =
        collectives::gather_texts(context.communicator, train::stop_requested() ? "signalled" : "");
    for (size_t rank = 0; rank < of_ranks.size(); ++rank)
      if (!of_ranks[rank].empty()) signalled.push_back(static_cast<int>(rank));
  }
  const int64_t peak_bytes = largest_peak_bytes(context.communicator);
  collectives::run_on_root(context.communicator, [&] {
    context.require_folder();
    train::write_run_end(context.run_dir,
                         {reason,
                          result.step,
                          steps,
                          to_hex(result.weights_hash),
                          signalled,
                          result.skipped_steps,
                          bad_records.value_or(0),
                          result.energy,
                          forecast,
                          peak_bytes});
  });
}

}  // namespace

void report_result(const train::TrainResult& result,
                   const train::RunContext& context,
                   const std::optional<forecast::KeptForecast>& forecast,
                   const std::string& json_path) {
  const std::optional<int64_t> bad_records = count_bad_records(context);
  const double measured_s = mean_step_s(result);
  const Json beside =
      forecast && measured_s > 0 ? forecast::to_json(*forecast, measured_s) : Json();
  write_end(result, context, bad_records, beside);
  if (context.communicator.rank() == 0) {
    if (!beside.is_null()) log_info("{}", forecast::words_after(*forecast, measured_s));
    print_summary(result, context, bad_records);
  }
  Json json = to_json(result, context, bad_records);
  if (!beside.is_null()) json["forecast"] = beside;
  write_result(context.communicator, json_path, json);
  FlightRecorder::here().begin_phase(FlightPhase::kEnded);
}

}  // namespace lockstep::launcher
