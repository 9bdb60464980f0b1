// lockstep train CONFIG
#include <fmt/core.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <variant>

#include "collectives/agreement.h"
#include "collectives/find_topology.h"
#include "launcher/bench/tune_buckets.h"
#include "launcher/commands/checkpoint_config.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/results.h"
#include "launcher/commands/run_folder.h"
#include "launcher/commands/train_options.h"
#include "launcher/commands/watch_run.h"
#include "launcher/ranks/devices.h"
#include "launcher/ranks/transport.h"
#include "models/onnx/roles.h"
#include "runtime/base/duration.h"
#include "runtime/base/flight_recorder.h"
#include "runtime/base/log.h"
#include "runtime/base/streams.h"
#include "runtime/base/threads.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/config/parse.h"
#include "runtime/config/reference.h"
#include "runtime/run/assembly.h"
#include "runtime/run/same_run.h"
#include "runtime/run/threads.h"
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

// What a step exchanges.
Json exchange_json(const Plan& plan, double bucket_mib) {
  Json json;
  json["bucket_mib"] = bucket_mib;
  json["buckets"] = plan.buckets.size();
  json["largest_bucket_bytes"] = largest_bucket(plan.buckets) * static_cast<int64_t>(sizeof(float));
  json["shares_memory"] = plan.topology.shares_memory;
  json["wire_bytes_per_step_per_rank"] = plan.wire_bytes;
  // Without a level of nodes the plan does not tell which of its ranks are on other ones.
  if (plan.topology.nodes > 1)
    json["network_bytes_per_step_per_node"] = plan.network_bytes * plan.topology.per_node;
  return json;
}

Json to_json(const TrainResult& result,
             const RunParts& parts,
             const std::optional<int64_t>& bad_records) {
  Json json;
  const std::string transport = name_of_transport(parts.slices, parts.plan.topology);
  if (!transport.empty()) json["transport"] = transport;
  json["step"] = result.step;
  if (result.loss) json["loss"] = *result.loss;
  if (result.evaluation) {
    each_metric(*result.evaluation, parts.model, [&](const std::string& name, double value) {
      json[name] = value;
    });
  }
  if (result.best_metric) json["best_metric"] = *result.best_metric;
  if (result.best_metric) json["best_step"] = result.best_step;
  json["weights_hash"] = hash_text_of(result.weights_hash);
  json["train_seconds"] = result.train_seconds;
  for (const RankTimes& times : result.rank_times) json["ranks"].push_back(to_json(times));
  json["exchange"] = exchange_json(parts.plan, parts.config.comm.bucket_mib);
  json["preempted"] = result.preempted;
  json["early_stopped"] = result.early_stopped;
  json["failed_checkpoints"] = result.failed_checkpoints;
  json["checkpoint_stall_seconds"] = result.checkpoint_stall_seconds;
  if (bad_records) json["bad_records"] = *bad_records;
  json["run_dir"] = parts.run_dir.string();
  return json;
}

std::string summary(const TrainResult& result, const RunParts& parts) {
  if (!result.loss)
    return fmt::format("nothing left to do: the run is at step {} of {}{}",
                       result.step,
                       parts.config.train.steps,
                       result.early_stopped ? ", stopped early" : "");
  std::string text = fmt::format(
      "{} at step {} of {} after {:.1f} s of training: loss {:.4f}",
      result.preempted ? "stopped on request" : (result.early_stopped ? "stopped early" : "done"),
      result.step,
      parts.config.train.steps,
      result.train_seconds,
      *result.loss);
  if (result.evaluation) {
    text += fmt::format(", evaluation loss {:.4f}", result.evaluation->loss) +
            words_for(*result.evaluation, parts.model);
  }
  return text;
}

void print_summary(const TrainResult& result,
                   const RunParts& parts,
                   const std::optional<int64_t>& bad_records) {
  const std::string text = summary(result, parts) + words_for(bad_records),
                    hash = hash_text_of(result.weights_hash);
  log_record(text + ", weights_hash " + hash);
  print_result(
      fmt::format("{}\nweights_hash {}\nrun folder   {}\n", text, hash, parts.run_dir.string()));
}

// Says in the run folder how the run has ended. All ranks together.
void write_end(const TrainResult& result, const RunParts& parts) {
  const int64_t steps = parts.config.train.steps;
  RunEnd::Reason reason = RunEnd::Reason::kLastStep;
  if (result.preempted)
    reason = RunEnd::Reason::kPreempted;
  else if (result.early_stopped)
    reason = RunEnd::Reason::kEarlyStopping;
  else if (result.step < steps)
    reason = RunEnd::Reason::kMaxSteps;
  std::vector<int> signalled;
  if (result.preempted) {
    const auto of_ranks = gather_texts(parts.communicator, stop_requested() ? "signalled" : "");
    for (size_t rank = 0; rank < of_ranks.size(); ++rank)
      if (!of_ranks[rank].empty()) signalled.push_back(static_cast<int>(rank));
  }
  run_on_root(parts.communicator, [&] {
    parts.check_folder();
    write_run_end(parts.run_dir,
                  {reason, result.step, steps, hash_text_of(result.weights_hash), signalled});
  });
}

void set_walltime(const std::string& text, RunConfig& config) {
  if (text.empty()) return;
  const std::optional<double> seconds = parse_duration(text);
  if (!seconds || *seconds <= 0)
    throw ConfigError(
        "--walltime: value is '{}'; allowed: 90m, 2.5h, 1d12h or HOURS:MINUTES:SECONDS, above 0",
        text);
  config.train.walltime_minutes = *seconds / 60;
}

// What is about to run, for the user.
void describe(const Assembly& assembly, RunDevice& device, Session& session) {
  const int ranks = session.communicator().size();
  log_info("device {}: {} rank{} x {} thread{}; {}",
           device.device().description(),
           ranks,
           ranks == 1 ? "" : "s",
           compute_threads(),
           compute_threads() == 1 ? "" : "s",
           assembly.data.summary.description);
  const int64_t frozen = assembly.plan.layout.frozen_parameters;
  log_info("{} parameters{}, {} steps of {} samples in {} lanes, {:.1f} MiB a rank",
           assembly.plan.layout.parameters,
           frozen > 0 ? fmt::format(", {} of them frozen", frozen) : "",
           assembly.config.train.steps,
           assembly.config.train.global_batch,
           assembly.plan.lanes,
           static_cast<double>(assembly.plan.memory_bytes()) / (1024 * 1024));
  const Topology& topology = assembly.plan.topology;
  const bool tree = assembly.config.comm.order == CommConfig::Order::kTree;
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
  else if (session.local_ranks() < ranks && tree)
    log_warn(
        "the nodes do not have equally many ranks that follow each other: sums are made in one "
        "step, which sends more over the network; mpirun --map-by core or srun "
        "--distribution=block place them so");
  if (session.communicator().rank() == 0)
    for (const std::string& warning : assembly.warnings) log_warn("{}", warning);
  log_debug("\n{}", memory_table(assembly.plan));
  if (const auto* onnx = std::get_if<OnnxConfig>(&assembly.config.model)) {
    const onnx::FileRoles roles = onnx::roles_of(*onnx, assembly.training);
    for (const std::string& line : onnx::lines_of(roles)) log_info("{}: {}", onnx->file, line);
    if (session.communicator().rank() > 0) return;
    for (const std::string& warning : onnx::warnings_of(roles))
      log_warn("{}: {}", onnx->file, warning);
  }
}

// With comm.tune_buckets: `assembly` is planned for the size of buckets that trains fastest, and
// fits into memory. All ranks together.
void tune_buckets(const RunStart& start,
                  RunConfig& config,
                  Assembly& assembly,
                  const std::function<void()>& assemble_run,
                  const std::function<void()>& check_fit) {
  const BucketChoice choice = choose_bucket_mib(start, assembly);
  const bool other = choice.bucket_mib != assembly.config.comm.bucket_mib;
  config.comm.bucket_mib = choice.bucket_mib;
  run_on_all(start.session.communicator(), [&] {
    if (choice.tried) {
      assemble_run();  // it has fitted
    } else if (other) {
      plan_again(assembly, choice.bucket_mib);
      check_fit();
    }
  });
}

// Where a host has too little memory for a copy of what a checkpoint has, all ranks do without it:
// the run waits for its checkpoints. False then. All ranks together.
bool fits_snapshot(Session& session, const RunDevice& device, const Assembly& assembly) {
  const bool lacks = lacks_memory_for_snapshot(assembly, session.local_ranks(), device.limits());
  if (sum_over_ranks(session.communicator(), lacks ? 1 : 0) == 0) return true;
  log_warn(
      "a host has too little memory for a copy of weights and moments: the run stands still while "
      "checkpoints are written, as with checkpoint.async: false");
  return false;
}

// The newest state of a run folder that can be read; empty: there is none. The checkpoint itself may be
// damaged, of which the trainer decides.
std::string newest_state(const std::filesystem::path& run_dir, std::string& where) {
  const std::vector<CheckpointEntry> entries = list_checkpoints(run_dir / "checkpoints");
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    try {
      where = entry->path;
      return to_text(read_state(entry->path));
    } catch (const CheckpointError&) {
      continue;
    }
  }
  return "";
}

// If it says what learns: the state of the checkpoint that --resume names, in the run's folder or elsewhere;
// `config` has the parameters that it recorded, and `older` is its name if an older revision wrote it. All ranks
// together; throws AgreedError.
std::optional<CheckpointState> find_state(Session& session,
                                          const TrainOptions& options,
                                          RunConfig& config,
                                          std::string& older) {
  if (!depends_on_checkpoint(config) || options.resume == "none") return std::nullopt;
  Communicator& communicator = session.communicator();
  std::string text, where = options.resume;
  run_on_root(communicator, [&] {
    if (options.resume == "auto")
      text = newest_state(config.output.run_dir, where);
    else
      text = to_text(read_state(where = resolve_checkpoint(options.resume)));
  });
  text = broadcast_text(communicator, text);
  if (text.empty()) return std::nullopt;
  const CheckpointState state = parse_state(text, "--resume");
  run_on_all(communicator, [&] {
    if (adopt_recorded_parameters(state, config.model)) older = where;
  });
  return state;
}

ExitCode train(Session& session, const TrainOptions& options) {
  init_log(options.common.log_level, session.communicator().rank(), session.communicator().size());
  install_stop_signals();
  RunConfig config;
  run_on_all(session.communicator(), [&] {
    check_result_path("--json", options.common.json);
    queue_results();
    config = read_config(options.common);
    set_walltime(options.walltime, config);
    for (const std::string& field : options.allowed_changes) find_references(field);
  });
  check_same_config(session.communicator(), config);
  RunDevice device(session, options.common);
  Topology topology = find_topology(session.communicator());
  choose_transport(session, config.comm.transport, device.device().ops());
  Communicator& communicator = session.communicator();
  communicator.set_files_timeout_s(config.comm.files_timeout_s);
  const CpuShare share = share_cpus(communicator);
  const std::unique_ptr<NodeMemory> node =
      wants_shared_memory(config.comm, topology, device.device().ops())
          ? NodeMemory::join(communicator, topology)
          : nullptr;
  topology.shares_memory = node != nullptr;
  std::string older;
  const std::optional<CheckpointState> state = find_state(session, options, config, older);
  Assembly assembly;
  bool has_snapshot = true;
  const auto assemble_run = [&] {
    assembly = {};
    assembly = assemble(
        config, topology, RunPurpose::kTrain, device.device().ops(), state ? &*state : nullptr);
    if (!has_snapshot) drop_snapshot(assembly);
    take_contents(assembly.data);
  };
  const auto check_fit = [&] { check_memory(assembly, session.local_ranks(), device.limits()); };
  run_on_all(communicator, [&] {
    set_compute_threads(choose_threads(config, share));
    assemble_run();
  });
  has_snapshot = fits_snapshot(session, device, assembly);
  run_on_all(communicator, [&] {
    if (!has_snapshot) drop_snapshot(assembly);
    check_fit();
  });
  check_same_data(communicator, assembly.data.summary);
  const std::unique_ptr<RunFolder> folder = open_run_folder(session, assembly.config);
  if (!older.empty() && communicator.rank() == 0) warn_of_older_revision(older);
  RunWatch watch(session, assembly.config);
  std::optional<RunParts> parts;
  std::unique_ptr<Trainer> trainer;
  watch.start([&] {
    if (config.comm.tune_buckets)
      tune_buckets(
          {session, device, topology, options.resume}, config, assembly, assemble_run, check_fit);
    device.open(assembly.config, assembly.training, assembly.plan.topology);
    run_on_all(communicator, check_fit);  // beside what the libraries have taken
    describe(assembly, device, session);
    log_info("threads a rank: {} ({})", compute_threads(), reason_for_threads(config, share));
    const bool shares_memory = assembly.plan.topology.shares_memory;
    if (shares_memory) allocate_shared(*node, assembly.plan);
    parts.emplace(parts_of(assembly,
                           communicator,
                           device.slices(),
                           device.backend(),
                           shares_memory ? node.get() : nullptr,
                           folder.get()));
    run_on_all(communicator, [&] { trainer = std::make_unique<Trainer>(*parts); });
    trainer->start(options.resume, options.allowed_changes);
  });
  describe_run(session, assembly.config, device.device(), folder.get());
  log_in_background();
  const TrainResult result = trainer->run(options.max_steps);
  write_end(result, *parts);
  const std::optional<int64_t> bad_records = count_bad_records(*parts);
  if (communicator.rank() == 0) print_summary(result, *parts, bad_records);
  write_result(session, options.common.json, to_json(result, *parts, bad_records));
  FlightRecorder::here().begin_phase(FlightPhase::kEnded);
  return result.preempted ? ExitCode::kPreempted : ExitCode::kOk;
}

}  // namespace

CommandSpec train_command() {
  auto options = std::make_shared<TrainOptions>();
  CommandSpec command{.name = "train", .help = "Train a model; alone, or on several ranks"};
  add_train_options(command, *options);
  command.footer =
      "SIGUSR1, SIGTERM, SIGINT, SIGHUP: finish the step (and an evaluation under way), write a\n"
      "checkpoint and end with exit code 75. Under mpirun send SIGUSR1 to mpirun, which passes it\n"
      "on; on SIGTERM and Ctrl-C mpirun kills the ranks itself after a few seconds, and its exit\n"
      "code is its own.\n"
      "With comm.tune_buckets: true a run of several ranks that starts anew first times some "
      "steps\n"
      "with each of several sizes of buckets, and keeps to the fastest.";
  command.run = [options](Session& session) { return train(session, *options); };
  return command;
}

}  // namespace lockstep
