// lockstep train CONFIG
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "collectives/agreement.h"
#include "launcher/assembly.h"
#include "launcher/results.h"
#include "launcher/run_folder.h"
#include "runtime/base/log.h"
#include "runtime/base/threads.h"
#include "runtime/config/parse.h"
#include "runtime/train/stop_signal.h"
#include "runtime/train/trainer.h"

namespace lockstep {
namespace {

struct TrainCommandOptions {
  CommonOptions common;
  std::string resume = "none";
  int64_t max_steps = -1;
};

nlohmann::ordered_json to_json(const TrainResult& result, const RunParts& parts) {
  nlohmann::ordered_json json;
  json["step"] = result.step;
  json["loss"] = result.loss;
  if (result.evaluation) {
    json["eval_loss"] = result.evaluation->loss;
    if (parts.has_accuracy()) json["eval_accuracy"] = result.evaluation->accuracy;
  }
  if (result.best_metric) json["best_metric"] = *result.best_metric;
  if (result.best_metric) json["best_step"] = result.best_step;
  json["weights_hash"] = hash_text_of(result.weights_hash);
  json["train_seconds"] = result.train_seconds;
  json["preempted"] = result.preempted;
  json["early_stopped"] = result.early_stopped;
  json["run_dir"] = parts.run_dir.string();
  return json;
}

void print_summary(const TrainResult& result, const RunParts& parts) {
  fmt::print(
      "{} at step {} of {} after {:.1f} s of training: loss {:.4f}",
      result.preempted ? "stopped on request" : (result.early_stopped ? "stopped early" : "done"),
      result.step,
      parts.config.train.steps,
      result.train_seconds,
      result.loss);
  if (result.evaluation) {
    fmt::print(", evaluation loss {:.4f}", result.evaluation->loss);
    if (parts.has_accuracy()) fmt::print(", accuracy {:.4f}", result.evaluation->accuracy);
  }
  fmt::print("\nweights_hash {}\nrun folder   {}\n",
             hash_text_of(result.weights_hash),
             parts.run_dir.string());
  std::fflush(stdout);
}

ExitCode train(Session& session, const TrainCommandOptions& options) {
  Communicator& communicator = session.communicator();
  init_log(options.common.log_level, communicator.rank(), communicator.size());
  Assembly assembly;
  run_on_all(communicator, [&] {
    RunConfig config = read_config(options.common);
    const std::string device = choose_device(options.common);
    set_compute_threads(choose_threads(config, session.local_ranks()));
    assembly = assemble(std::move(config), communicator.size(), AssemblyPurpose::kTrain);
    check_memory(assembly, session.local_ranks());
    spdlog::info("device {}: {} rank{} x {} thread{}; {}",
                 device,
                 communicator.size(),
                 communicator.size() == 1 ? "" : "s",
                 compute_threads(),
                 compute_threads() == 1 ? "" : "s",
                 assembly.data.summary.description);
  });
  const RunParts parts = parts_of(assembly, communicator);
  spdlog::info("{} parameters, {} steps of {} samples in {} lanes, {:.1f} MiB a rank",
               assembly.plan.layout.parameters,
               assembly.config.train.steps,
               assembly.config.train.global_batch,
               assembly.plan.lanes,
               static_cast<double>(assembly.plan.memory_bytes()) / (1024 * 1024));
  spdlog::debug("\n{}", memory_table(assembly.plan));
  prepare_run_folder(session, assembly.config, options.resume);
  install_stop_signals();
  std::unique_ptr<Trainer> trainer;
  run_on_all(communicator, [&] { trainer = std::make_unique<Trainer>(parts); });
  const TrainResult result = trainer->run({options.resume, options.max_steps});
  write_result(session, options.common.json, to_json(result, parts));
  if (communicator.rank() == 0) print_summary(result, parts);
  return result.preempted ? ExitCode::kPreempted : ExitCode::kOk;
}

}  // namespace

void add_train_command(CLI::App& app, Command& selected) {
  auto options = std::make_shared<TrainCommandOptions>();
  CLI::App* command =
      app.add_subcommand("train", "Train a model; alone, or on several ranks under mpirun or srun");
  add_common_options(*command, options->common);
  command
      ->add_option("--resume",
                   options->resume,
                   "auto: continue from the newest checkpoint of the run folder, if there is one; "
                   "none: start anew; or "
                   "the path of a checkpoint")
      ->capture_default_str();
  command
      ->add_option(
          "--max-steps",
          options->max_steps,
          "Stop at this step, counted from the beginning of the run (the schedule's length stays)")
      ->check(at_least(0));
  command->footer("SIGUSR1, SIGTERM and SIGINT: write a checkpoint and end with exit code 75.");
  command->callback([options, &selected] {
    selected = [options](Session& session) { return train(session, *options); };
  });
}

}  // namespace lockstep
