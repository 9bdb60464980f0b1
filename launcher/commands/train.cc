// lockstep train CONFIG
#include <fmt/core.h>

#include <cerrno>
#include <optional>
#include <utility>
#include <variant>

#include "collectives/agree/agreement.h"
#include "collectives/agree/link_rate.h"
#include "launcher/bench/bf16x3_advice.h"
#include "launcher/bench/choose_algorithms.h"
#include "launcher/bench/tune_buckets.h"
#include "launcher/command_line/results.h"
#include "launcher/command_line/train_options.h"
#include "launcher/commands/commands.h"
#include "launcher/forecast/hardware_option.h"
#include "launcher/forecast/kept_forecast.h"
#include "launcher/ranks/rank_context.h"
#include "launcher/ranks/transport.h"
#include "launcher/run/begin_folder.h"
#include "launcher/run/checkpoint_config.h"
#include "launcher/run/metrics_server.h"
#include "launcher/run/resumed_run.h"
#include "launcher/run/train_result.h"
#include "launcher/run/watch_run.h"
#include "models/huggingface/folder.h"
#include "models/onnx/bind/roles.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/names.h"
#include "runtime/base/streams.h"
#include "runtime/base/text.h"
#include "runtime/base/threads.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/checkpoint/format/safetensors.h"
#include "runtime/config/reference.h"
#include "runtime/cpu/device.h"
#include "runtime/run/defaults.h"
#include "runtime/run/lanes.h"
#include "runtime/run/precision.h"
#include "runtime/run/prepared_run.h"
#include "runtime/run/same_run.h"
#include "runtime/run/threads.h"
#include "runtime/run/zero_stage.h"
#include "runtime/train/state/initial_weights.h"
#include "runtime/train/step/stop_signal.h"
#include "runtime/train/trainer.h"

namespace lockstep::launcher {
namespace {

// Logs what is about to run.
void describe(const run::PreparedRun& prepared, const SameChoices& choices, RankContext& rank) {
  collectives::Communicator& communicator = rank.communicator();
  RankDevice& device = rank.device;
  const int ranks = communicator.size();
  log_info("device {}: {} rank{} x {} thread{}; {}",
           device.device().description(),
           ranks,
           plural(ranks),
           compute_threads(),
           plural(compute_threads()),
           prepared.data->summary.description);
  if (choices.precision.worth_logging) log_info("precision: {}", choices.precision.text());
  if (prepared.config.execution.precision == Precision::kBf16 &&
      !device.device().ops().separate_memory) {
    const std::string products = cpu::name_of_bf16_products();
    log_info(
        "BF16 on this CPU: {}",
        products.empty()
            ? "numbers are widened to FP32 for arithmetic: activations take half the memory, and a "
              "step as long as in FP32"
            : "products by " + products);
  }
  if (!choices.lanes.empty()) log_info("lanes: {}", choices.lanes);
  if (communicator.rank() == 0) {
    const std::string unused =
        run::lane_use(prepared.config, prepared.plan.sharding.shares()).warning;
    if (!unused.empty()) log_warn("{}", unused);
    const std::string advice = measured_bf16x3_advice(device.device(), prepared.config.execution);
    if (!advice.empty()) log_info("{}", advice);
  }
  const int64_t frozen = prepared.plan.layout.frozen_parameters;
  log_info("{} parameters{}, {} steps of {} samples in {} lanes, {:.1f} MiB a rank",
           prepared.plan.layout.parameters,
           frozen > 0 ? fmt::format(", {} of them frozen", frozen) : "",
           prepared.config.train.steps,
           prepared.config.train.global_batch,
           prepared.plan.sharding.lanes,
           static_cast<double>(prepared.plan.memory.total_bytes()) / (1024 * 1024));
  const collectives::Topology& topology = prepared.plan.sharding.topology;
  const bool tree = prepared.config.comm.order == CommConfig::Order::kTree;
  if (ranks > 1 && topology.nodes == 1)
    log_info("between the ranks: {}{}",
             name_of_transport(device.slices(), topology),
             tree ? "" : "; comm.order FAST sends everything, in no fixed order of sums");
  if (topology.nodes > 1)
    log_info("{} nodes of {} rank{}: sums are made within nodes, then between them, over {}",
             topology.nodes,
             topology.per_node,
             plural(topology.per_node),
             name_of_transport(device.slices(), topology));
  else if (rank.session.local_ranks() < ranks && tree)
    log_warn(
        "the nodes do not have equal numbers of consecutive ranks: sums are made in one step, "
        "which sends more over the network; mpirun --map-by core or srun --distribution=block "
        "place consecutive ranks on a node");
  if (communicator.rank() == 0)
    for (const std::string& warning : prepared.warnings) log_warn("{}", warning);
  log_debug("\n{}", plan::memory_table(prepared.plan.memory));
  log_info("threads a rank: {} ({})",
           compute_threads(),
           run::reason_for_threads(prepared.config, rank.share));
  if (const auto* onnx = std::get_if<OnnxConfig>(&prepared.config.model)) {
    const onnx::FileRoles roles = onnx::roles_of(*onnx, prepared.graphs->training);
    for (const std::string& line : onnx::lines_of(roles)) log_info("{}: {}", onnx->file, line);
    if (communicator.rank() > 0) return;
    for (const std::string& warning : onnx::warnings_of(roles))
      log_warn("{}: {}", onnx->file, warning);
  }
}

// Reads this rank's config. All ranks together; throws AgreedError.
run::OpenedConfig read_given_config(Session& session, const TrainOptions& options) {
  run::OpenedConfig opened;
  collectives::run_on_all(session.communicator(), [&] {
    check_train_options(options);
    require_result_path("--json", options.common.json);
    queue_results();
    if (!options.on.empty()) planned_hardware("--on", options.on);  // before anything is made
    opened = read_config(options.common, options.walltime);
    for (const std::string& field : options.allowed_changes) config::find_references(field);
  });
  return opened;
}

// If a host has too little memory for a snapshot, all ranks do without it, and training waits while
// checkpoints are written. All ranks together.
run::PreparedRun fit_snapshot(RankContext& rank, const run::PreparedRun& prepared) {
  collectives::Communicator& communicator = rank.communicator();
  const bool lacks =
      run::lacks_memory_for_snapshot(prepared, rank.session.local_ranks(), rank.device.limits());
  if (collectives::sum_over_ranks(communicator, lacks ? 1 : 0) == 0) return prepared;
  log_warn(
      "a host has too little memory for a copy of weights and moments: training waits while "
      "checkpoints are written, as with checkpoint.async: false");
  run::PreparedRun without;
  collectives::run_on_all(communicator, [&] { without = run::without_snapshot(prepared); });
  return without;
}

// What a node's network sends, in Gbit/s, measured if comm.zero_stage AUTO depends on it; else 0.
// All ranks together.
double find_link_rate(RankContext& rank, const RunConfig& config) {
  const exec::OpSet& ops = rank.device.device().ops();
  const bool decides = config.comm.zero_stage == ZeroStage::kAuto && config.comm.link_gbit == 0 &&
                       config.comm.power_sgd_rank == 0 &&
                       run::stage_0_below_gbit(config, rank.placed, ops) > 0;
  // GPUs have links that the host does not see.
  if (!decides || ops.separate_memory) return 0;
  const double gbit = collectives::measure_link(rank.communicator(), rank.placed).gbit;
  log_info("the network of a node sends {:.3g} Gbit/s (measured; comm.link_gbit sets it)", gbit);
  return gbit;
}

// The run, planned and known to fit into memory. All ranks together; throws AgreedError.
run::PreparedRun prepare(RankContext& rank, const ResumedConfig& resumed) {
  collectives::Communicator& communicator = rank.communicator();
  const double link_gbit = find_link_rate(rank, resumed.opened.config);
  run::PreparedRun prepared;
  collectives::run_on_all(communicator, [&] {
    set_compute_threads(run::choose_threads(resumed.opened.config, rank.share));
    prepared = run::prepare_run(resumed.opened,
                                rank.placed,
                                run::RunPurpose::kTrain,
                                rank.device.device().ops(),
                                {.checkpoint = resumed.state ? &*resumed.state : nullptr,
                                 .link_gbit = link_gbit,
                                 .eager = rank.device.eager()});
    run::add_checksums(*prepared.data);
  });
  prepared = rank.fit_sums(fit_snapshot(rank, prepared));
  collectives::run_on_all(communicator, [&] { rank.require_memory(prepared); });
  run::check_same_data(communicator, prepared.data->summary);
  return prepared;
}

// The run with the size of buckets that comm.tune_buckets chooses. All ranks together.
run::PreparedRun tune_buckets(RankContext& rank,
                              const run::PreparedRun& prepared,
                              const std::string& resume) {
  if (!prepared.config.comm.tune_buckets) return prepared;
  const double bucket_mib = choose_bucket_mib(rank, prepared, resume);
  if (bucket_mib == prepared.defaults.bucket_mib) return prepared;
  run::PreparedRun tuned;
  collectives::run_on_all(rank.communicator(), [&] {
    tuned = run::with_buckets(prepared, bucket_mib);
    rank.require_memory(tuned);
  });
  return tuned;
}

// Opens the device for the run, and allocates the memory that ranks of a node share. All ranks
// together.
train::RunContext open_device(RankContext& rank,
                              const run::PreparedRun& prepared,
                              const SameChoices& choices,
                              train::RunFolder* folder) {
  rank.device.open(prepared.recorded, prepared.graphs->training, prepared.plan.sharding.topology);
  // Again, because the device's libraries have taken memory.
  collectives::run_on_all(rank.communicator(), [&] { rank.require_memory(prepared); });
  describe(prepared, choices, rank);
  const bool shares_memory = prepared.plan.sharding.topology.shares_memory;
  if (shares_memory) train::allocate_shared(*rank.node, prepared.plan);
  train::RunContext context = run::context_of(prepared,
                                              rank.communicator(),
                                              rank.device.slices(),
                                              rank.device.backend(),
                                              shares_memory ? rank.node.get() : nullptr,
                                              folder);
  context.monitor = rank.device.device().monitor();
  context.bits = rank.device.bits(context.config);
  context.choice_of_bits = rank.device.device().choice_of_bits();
  return context;
}

// Checks paths before the run folder is made, so that a mistake leaves none. All ranks together.
void check_paths(Session& session, const TrainOptions& options, const RunConfig& config) {
  collectives::run_on_root(session.communicator(), [&] {
    if (options.resume != "auto" && options.resume != "none")
      checkpoint::resolve_checkpoint(options.resume);
    const std::string& from = config.train.init_from;
    if (options.resume != "none" || from.empty()) return;
    if (!lockstep::is_there(from))
      throw CheckpointError("train.init_from: '{}' does not exist{}{}",
                            from,
                            look_alike_remedy(from, ENOENT),
                            huggingface::download_remedy(from));
    train::require_weights_path(from);
    if (!is_file(from)) return;
    try {
      checkpoint::SafetensorsFile{from};
    } catch (const CheckpointError& error) {
      throw CheckpointError("train.init_from: {}", error.what());
    }
  });
}

// The forecast for the hardware `on` or for this GPU, if it is known. All ranks together.
std::optional<forecast::KeptForecast> make_forecast(RankContext& rank,
                                                    const run::PreparedRun& prepared,
                                                    const std::string& on) {
  std::optional<forecast::KeptForecast> forecast;
  collectives::run_on_all(rank.communicator(), [&] {
    forecast = forecast::forecast_to_keep(prepared,
                                          on,
                                          rank.device.device().description(),
                                          rank.session.local_ranks(),
                                          compute_threads());
  });
  if (forecast) log_info("{}", forecast::words_before(*forecast));
  return forecast;
}

struct CloseAtEnd {
  RankDevice& device;
  ~CloseAtEnd() { device.close(); }
};

ExitCode train(Session& session, TrainOptions options) {
  init_log(options.common.log_level, session.communicator().rank(), session.communicator().size());
  train::install_stop_signals();
  std::string start;
  collectives::run_on_all(session.communicator(), [&] { start = decide_start(options); });
  if (!start.empty()) log_info("{}", start);
  const run::OpenedConfig given = read_given_config(session, options);
  std::unique_ptr<exec::Device> device = choose_device(session, options.common, /*trains=*/true);
  const SameChoices choices = choose_same(session, options, given, device->ops());
  const run::OpenedConfig& opened = choices.precision.opened;
  RankContext rank(
      session, options.common, std::move(device), opened.config.comm, run::RunPurpose::kTrain);
  const ResumedConfig resumed = find_state(rank, options, opened);
  check_paths(session, options, resumed.opened.config);
  const std::unique_ptr<MetricsServer> server = serve_metrics(session, resumed.opened.config);
  run::PreparedRun prepared = prepare(rank, resumed);
  const std::optional<forecast::KeptForecast> forecast = make_forecast(rank, prepared, options.on);
  const std::unique_ptr<train::RunFolder> folder = open_run_folder(session, prepared.config);
  if (!resumed.older.empty() && folder != nullptr) warn_of_older_revision(resumed.older);
  const bool on_gpu = rank.device.device().ops().separate_memory;
  RunWatch watch(session, prepared.config, on_gpu);
  // Freeing the memory of a GPU that hangs does not end: the watchdog must still watch.
  const CloseAtEnd close{rank.device};
  std::optional<train::RunContext> context;
  std::unique_ptr<train::Trainer> trainer;
  watch.start([&] {
    if (!prepared.config.execution.tune.empty())
      rank.device.use_algorithms(choose_algorithms(rank, prepared, options.resume));
    prepared = tune_buckets(rank, prepared, options.resume);
    context.emplace(open_device(rank, prepared, choices, folder.get()));
    if (server) context->page = &server->page();
    if (forecast) context->predicted_step_ms = 1e3 * forecast->step_s.middle();
    collectives::run_on_all(rank.communicator(),
                            [&] { trainer = std::make_unique<train::Trainer>(*context); });
    trainer->start(options.resume, options.allowed_changes);
  });
  describe_run(session,
               prepared.recorded,
               prepared.plan.memory,
               rank.device.device(),
               rank.device.bits(prepared.recorded),
               folder.get());
  log_in_background();
  const train::TrainResult result = trainer->run(options.max_steps);
  report_result(result, *context, forecast, options.common.json);
  return result.preempted ? ExitCode::kPreempted : ExitCode::kOk;
}

}  // namespace

CommandSpec train_command() {
  auto options = std::make_shared<TrainOptions>();
  CommandSpec command{.name = "train",
                      .help = "Train a model; alone, or on several ranks",
                      .also = "fit run training finetune fine_tune resume pretrain train_py"};
  add_train_options(command, *options);
  command.footer =
      "SIGUSR1, SIGTERM, SIGINT, SIGHUP: finish the step (and an evaluation under way), write a\n"
      "checkpoint and end with exit code 75. Under mpirun send SIGUSR1 to mpirun, which passes it\n"
      "on; on SIGTERM and Ctrl-C mpirun kills the ranks itself after a few seconds, and its exit\n"
      "code is its own.\n"
      "With comm.tune_buckets: true a new run of several ranks first times some steps with each "
      "of\nseveral sizes of buckets, and takes the fastest.\n"
      "With execution.tune: FILE a run on GPUs takes the algorithms of cuBLASLt and cuDNN that\n"
      "FILE names; if FILE does not exist, rank 0 first times them and writes it.";
  command.run = [options](Session& session) { return train(session, *options); };
  return command;
}

}  // namespace lockstep::launcher
