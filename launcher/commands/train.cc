// lockstep train CONFIG
#include <fmt/core.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <utility>
#include <variant>

#include "collectives/agreement.h"
#include "launcher/bench/bf16x3_advice.h"
#include "launcher/bench/tune_buckets.h"
#include "launcher/commands/checkpoint_config.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/results.h"
#include "launcher/commands/resumed_run.h"
#include "launcher/commands/run_folder.h"
#include "launcher/commands/train_options.h"
#include "launcher/commands/watch_run.h"
#include "launcher/ranks/rank_context.h"
#include "launcher/ranks/transport.h"
#include "models/huggingface/folder.h"
#include "models/onnx/roles.h"
#include "runtime/base/file.h"
#include "runtime/base/flight_recorder.h"
#include "runtime/base/log.h"
#include "runtime/base/names.h"
#include "runtime/base/streams.h"
#include "runtime/base/threads.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/config/parse.h"
#include "runtime/config/reference.h"
#include "runtime/run/precision.h"
#include "runtime/run/prepared_run.h"
#include "runtime/run/same_run.h"
#include "runtime/run/threads.h"
#include "runtime/train/checkpoints/initial_weights.h"
#include "runtime/train/folder/run_end.h"
#include "runtime/train/step/stop_signal.h"
#include "runtime/train/trainer.h"

namespace lockstep {
namespace {

Json to_json(const RankTimes& times) {
  Json json = Json::object({{"rank", times.rank}, {"host", times.host}, {"steps", times.steps}});
  for (const RankMean& mean : kRankMeans) json[mean.name] = times.*mean.value;
  return json;
}

// Adds what is known of a rank's device over the run.
void add_device(Json& rank, const DeviceReport& device) {
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
Json exchange_json(const Plan& plan, double bucket_mib) {
  Json json;
  json["bucket_mib"] = bucket_mib;
  json["buckets"] = plan.buckets.size();
  json["largest_bucket_bytes"] = largest_bucket(plan.buckets) * static_cast<int64_t>(sizeof(float));
  json["shares_memory"] = plan.topology.shares_memory;
  json["wire_bytes_per_step_per_rank"] = plan.wire_bytes;
  // Without a level of nodes the plan does not tell which of its ranks are on other nodes.
  if (plan.topology.nodes > 1)
    json["network_bytes_per_step_per_node"] = plan.network_bytes * plan.topology.per_node;
  return json;
}

Json to_json(const TrainResult& result,
             const RunContext& context,
             const std::optional<int64_t>& bad_records) {
  Json json;
  const std::string transport = name_of_transport(context.slices, context.plan.topology);
  if (!transport.empty()) json["transport"] = transport;
  json["step"] = result.step;
  if (result.loss) json["loss"] = *result.loss;
  if (result.evaluation) {
    each_metric(*result.evaluation, context.model, [&](const std::string& name, double value) {
      json[name] = value;
    });
  }
  if (result.best_metric) json["best_metric"] = *result.best_metric;
  if (result.best_metric) json["best_step"] = result.best_step;
  json["weights_hash"] = hash_text_of(result.weights_hash);
  json["train_seconds"] = result.train_seconds;
  for (const RankTimes& times : result.rank_times) {
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

std::string summary(const TrainResult& result, const RunContext& context) {
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
            words_for(*result.evaluation, context.model);
  }
  return text;
}

void print_summary(const TrainResult& result,
                   const RunContext& context,
                   const std::optional<int64_t>& bad_records) {
  const std::string text = summary(result, context) +
                           words_for_skipped(result.skipped_steps, context.config) +
                           words_for(bad_records),
                    hash = hash_text_of(result.weights_hash);
  log_record(text + ", weights_hash " + hash);
  const std::string devices = words_for(result.devices);
  if (!devices.empty()) log_record(devices);
  print_result(fmt::format("{}\n{}weights_hash {}\nrun folder   {}\n",
                           text,
                           devices.empty() ? "" : devices + "\n",
                           hash,
                           context.run_dir.string()));
}

// Writes into the run folder how the run has ended. All ranks together.
void write_end(const TrainResult& result,
               const RunContext& context,
               const std::optional<int64_t>& bad_records) {
  const int64_t steps = context.config.train.steps;
  RunEnd::Reason reason = RunEnd::Reason::kLastStep;
  if (result.preempted)
    reason = RunEnd::Reason::kPreempted;
  else if (result.early_stopped)
    reason = RunEnd::Reason::kEarlyStopping;
  else if (result.step < steps)
    reason = RunEnd::Reason::kMaxSteps;
  std::vector<int> signalled;
  if (result.preempted) {
    const auto of_ranks = gather_texts(context.communicator, stop_requested() ? "signalled" : "");
    for (size_t rank = 0; rank < of_ranks.size(); ++rank)
      if (!of_ranks[rank].empty()) signalled.push_back(static_cast<int>(rank));
  }
  run_on_root(context.communicator, [&] {
    context.require_folder();
    write_run_end(context.run_dir,
                  {reason,
                   result.step,
                   steps,
                   hash_text_of(result.weights_hash),
                   signalled,
                   result.skipped_steps,
                   bad_records.value_or(0)});
  });
}

// Logs what is about to run.
void describe(const PreparedRun& prepared, const ChosenPrecision& precision, RankContext& rank) {
  Communicator& communicator = rank.communicator();
  RankDevice& device = rank.device;
  const int ranks = communicator.size();
  log_info("device {}: {} rank{} x {} thread{}; {}",
           device.device().description(),
           ranks,
           ranks == 1 ? "" : "s",
           compute_threads(),
           compute_threads() == 1 ? "" : "s",
           prepared.data->summary.description);
  if (precision.worth_logging) log_info("precision: {}", precision.text());
  if (communicator.rank() == 0) {
    const std::string advice = measured_bf16x3_advice(device.device(), prepared.config.execution);
    if (!advice.empty()) log_info("{}", advice);
  }
  const int64_t frozen = prepared.plan.layout.frozen_parameters;
  log_info("{} parameters{}, {} steps of {} samples in {} lanes, {:.1f} MiB a rank",
           prepared.plan.layout.parameters,
           frozen > 0 ? fmt::format(", {} of them frozen", frozen) : "",
           prepared.config.train.steps,
           prepared.config.train.global_batch,
           prepared.plan.lanes,
           static_cast<double>(prepared.plan.memory_bytes()) / (1024 * 1024));
  const Topology& topology = prepared.plan.topology;
  const bool tree = prepared.config.comm.order == CommConfig::Order::kTree;
  if (ranks > 1 && topology.nodes == 1)
    log_info("between the ranks: {}{}",
             name_of_transport(device.slices(), topology),
             tree ? "" : "; comm.order FAST sends everything, in no fixed order of sums");
  if (topology.nodes > 1)
    log_info("{} nodes of {} rank{}: sums are made within nodes, then between them, over {}",
             topology.nodes,
             topology.per_node,
             topology.per_node == 1 ? "" : "s",
             name_of_transport(device.slices(), topology));
  else if (rank.session.local_ranks() < ranks && tree)
    log_warn(
        "the nodes do not have equal numbers of consecutive ranks: sums are made in one step, "
        "which sends more over the network; mpirun --map-by core or srun --distribution=block "
        "place consecutive ranks on a node");
  if (communicator.rank() == 0)
    for (const std::string& warning : prepared.warnings) log_warn("{}", warning);
  log_debug("\n{}", memory_table(prepared.plan));
  log_info("threads a rank: {} ({})",
           compute_threads(),
           reason_for_threads(prepared.config, rank.share));
  if (const auto* onnx = std::get_if<OnnxConfig>(&prepared.config.model)) {
    const onnx::FileRoles roles = onnx::roles_of(*onnx, prepared.graphs->training);
    for (const std::string& line : onnx::lines_of(roles)) log_info("{}: {}", onnx->file, line);
    if (communicator.rank() > 0) return;
    for (const std::string& warning : onnx::warnings_of(roles))
      log_warn("{}: {}", onnx->file, warning);
  }
}

// Reads this rank's config. All ranks together; throws AgreedError.
OpenedConfig read_given_config(Session& session, const TrainOptions& options) {
  OpenedConfig opened;
  run_on_all(session.communicator(), [&] {
    check_train_options(options);
    require_result_path("--json", options.common.json);
    queue_results();
    opened = read_config(options.common, options.walltime);
    for (const std::string& field : options.allowed_changes) find_references(field);
  });
  return opened;
}

// If a host has too little memory for a snapshot, all ranks do without it, and training waits while
// checkpoints are written. All ranks together.
PreparedRun fit_snapshot(RankContext& rank, const PreparedRun& prepared) {
  Communicator& communicator = rank.communicator();
  const bool lacks =
      lacks_memory_for_snapshot(prepared, rank.session.local_ranks(), rank.device.limits());
  if (sum_over_ranks(communicator, lacks ? 1 : 0) == 0) return prepared;
  log_warn(
      "a host has too little memory for a copy of weights and moments: training waits while "
      "checkpoints are written, as with checkpoint.async: false");
  PreparedRun without;
  run_on_all(communicator, [&] { without = without_snapshot(prepared); });
  return without;
}

// The run, planned and known to fit into memory. All ranks together; throws AgreedError.
PreparedRun prepare(RankContext& rank, const ResumedConfig& resumed) {
  Communicator& communicator = rank.communicator();
  PreparedRun prepared;
  run_on_all(communicator, [&] {
    set_compute_threads(choose_threads(resumed.opened.config, rank.share));
    prepared = prepare_run(
        resumed.opened,
        rank.placed,
        RunPurpose::kTrain,
        rank.device.device().ops(),
        {.checkpoint = resumed.state ? &*resumed.state : nullptr, .eager = rank.device.eager()});
    add_checksums(*prepared.data);
  });
  prepared = fit_snapshot(rank, prepared);
  run_on_all(communicator, [&] { rank.require_memory(prepared); });
  check_same_data(communicator, prepared.data->summary);
  return prepared;
}

// The run with the size of buckets that comm.tune_buckets chooses. All ranks together.
PreparedRun tune_buckets(RankContext& rank,
                         const PreparedRun& prepared,
                         const std::string& resume) {
  if (!prepared.config.comm.tune_buckets) return prepared;
  const double bucket_mib = choose_bucket_mib(rank, prepared, resume);
  if (bucket_mib == prepared.defaults.bucket_mib) return prepared;
  PreparedRun tuned;
  run_on_all(rank.communicator(), [&] {
    tuned = with_buckets(prepared, bucket_mib);
    rank.require_memory(tuned);
  });
  return tuned;
}

// Opens the device for the run, and allocates the memory that ranks of a node share. All ranks
// together.
RunContext open_device(RankContext& rank,
                       const PreparedRun& prepared,
                       const ChosenPrecision& precision,
                       RunFolder* folder) {
  rank.device.open(prepared.recorded, prepared.graphs->training, prepared.plan.topology);
  // Again, because the device's libraries have taken memory.
  run_on_all(rank.communicator(), [&] { rank.require_memory(prepared); });
  describe(prepared, precision, rank);
  const bool shares_memory = prepared.plan.topology.shares_memory;
  if (shares_memory) allocate_shared(*rank.node, prepared.plan);
  RunContext context = context_of(prepared,
                                  rank.communicator(),
                                  rank.device.slices(),
                                  rank.device.backend(),
                                  shares_memory ? rank.node.get() : nullptr,
                                  folder);
  context.monitor = rank.device.device().monitor();
  return context;
}

// Reports the result of a run that has ended. All ranks together.
ExitCode finish(const TrainResult& result,
                const RunContext& context,
                const TrainOptions& options,
                Session& session) {
  const std::optional<int64_t> bad_records = count_bad_records(context);
  write_end(result, context, bad_records);
  if (context.communicator.rank() == 0) print_summary(result, context, bad_records);
  write_result(session, options.common.json, to_json(result, context, bad_records));
  FlightRecorder::here().begin_phase(FlightPhase::kEnded);
  return result.preempted ? ExitCode::kPreempted : ExitCode::kOk;
}

// Checks paths before the run folder is made, so that a mistake leaves none. All ranks together.
void check_paths(Session& session, const TrainOptions& options, const RunConfig& config) {
  run_on_root(session.communicator(), [&] {
    if (options.resume != "auto" && options.resume != "none") resolve_checkpoint(options.resume);
    const std::string& from = config.train.init_from;
    if (options.resume != "none" || from.empty()) return;
    if (!is_there(from))
      throw CheckpointError("train.init_from: '{}' does not exist{}{}",
                            from,
                            look_alike_remedy(from, ENOENT),
                            huggingface::download_remedy(from));
    require_weights_path(from);
    if (!is_file(from)) return;
    try {
      SafetensorsFile{from};
    } catch (const CheckpointError& error) {
      throw CheckpointError("train.init_from: {}", error.what());
    }
  });
}

struct CloseAtEnd {
  RankDevice& device;
  ~CloseAtEnd() { device.close(); }
};

ExitCode train(Session& session, const TrainOptions& options) {
  init_log(options.common.log_level, session.communicator().rank(), session.communicator().size());
  install_stop_signals();
  const OpenedConfig given = read_given_config(session, options);
  std::unique_ptr<Device> device = choose_device(session, options.common, /*trains=*/true);
  const ChosenPrecision precision = choose_same_precision(session, options, given, device->ops());
  const OpenedConfig& opened = precision.opened;
  RankContext rank(
      session, options.common, std::move(device), opened.config.comm, RunPurpose::kTrain);
  const ResumedConfig resumed = find_state(rank, options, opened);
  check_paths(session, options, resumed.opened.config);
  PreparedRun prepared = prepare(rank, resumed);
  const std::unique_ptr<RunFolder> folder = open_run_folder(session, prepared.config);
  if (!resumed.older.empty() && folder != nullptr) warn_of_older_revision(resumed.older);
  const bool on_gpu = rank.device.device().ops().separate_memory;
  RunWatch watch(session, prepared.config, on_gpu);
  // Freeing the memory of a GPU that hangs does not end: the watchdog must still watch.
  const CloseAtEnd close{rank.device};
  std::optional<RunContext> context;
  std::unique_ptr<Trainer> trainer;
  watch.start([&] {
    prepared = tune_buckets(rank, prepared, options.resume);
    context.emplace(open_device(rank, prepared, precision, folder.get()));
    run_on_all(rank.communicator(), [&] { trainer = std::make_unique<Trainer>(*context); });
    trainer->start(options.resume, options.allowed_changes);
  });
  describe_run(session, prepared.recorded, rank.device.device(), folder.get());
  log_in_background();
  return finish(trainer->run(options.max_steps), *context, options, session);
}

}  // namespace

CommandSpec train_command() {
  auto options = std::make_shared<TrainOptions>();
  CommandSpec command{
      .name = "train",
      .help = "Train a model; alone, or on several ranks",
      .also = {
          "fit", "run", "training", "finetune", "fine_tune", "resume", "pretrain", "train_py"}};
  add_train_options(command, *options);
  command.footer =
      "SIGUSR1, SIGTERM, SIGINT, SIGHUP: finish the step (and an evaluation under way), write a\n"
      "checkpoint and end with exit code 75. Under mpirun send SIGUSR1 to mpirun, which passes it\n"
      "on; on SIGTERM and Ctrl-C mpirun kills the ranks itself after a few seconds, and its exit\n"
      "code is its own.\n"
      "With comm.tune_buckets: true a new run of several ranks first times some steps with each "
      "of\nseveral sizes of buckets, and takes the fastest.";
  command.run = [options](Session& session) { return train(session, *options); };
  return command;
}

}  // namespace lockstep
