// lockstep eval CONFIG --checkpoint DIR
#include <fmt/format.h>

#include <cstdio>

#include "collectives/agreement.h"
#include "collectives/nodes.h"
#include "launcher/devices.h"
#include "launcher/results.h"
#include "runtime/base/log.h"
#include "runtime/base/threads.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/train/evaluator.h"
#include "runtime/train/initialize.h"
#include "runtime/train/weights.h"

namespace lockstep {
namespace {

struct EvalCommandOptions {
  CommonOptions common;
  std::string checkpoint;
};

ExitCode evaluate(Session& session, const EvalCommandOptions& options) {
  Communicator& communicator = session.communicator();
  init_log(options.common.log_level, communicator.rank(), communicator.size());
  const int sharing = ranks_sharing_cpus(communicator);
  const Topology topology = find_topology(communicator);
  RunDevice device(session, options.common);
  Assembly assembly;
  run_on_all(communicator, [&] {
    check_result_path(options.common.json);
    RunConfig config = read_config(options.common);
    set_compute_threads(choose_threads(config, sharing));
    assembly =
        assemble(std::move(config), topology, AssemblyPurpose::kEvaluate, device.device().ops());
    check_memory(assembly, session.local_ranks(), device.limits());
  });
  device.open(assembly.config);
  const RunParts parts = parts_of(assembly, communicator, device.slices(), device.backend());
  RunMemory memory;
  CheckpointState state;
  run_on_all(communicator, [&] {
    memory = allocate_run(parts.backend, assembly.plan);
    const std::filesystem::path folder = resolve_checkpoint(options.checkpoint);
    state = read_state(folder);
    HostWeights weights(parts, memory);
    read_model(folder, state, named_slices(assembly.plan.layout), weights.data());
    weights.write();
  });
  Reducer reducer({parts.slices, communicator},
                  parts.backend,
                  {assembly.plan.lanes,
                   false,
                   assembly.plan.buckets,
                   assembly.plan.gather_order(),
                   assembly.plan.topology},
                  nullptr,
                  nullptr);
  const Evaluation result = Evaluator(parts, memory, reducer).run();

  nlohmann::ordered_json json;
  json["step"] = state.step;
  json["samples"] = result.samples;
  json["eval_loss"] = result.loss;
  const bool labels = parts.has_accuracy();
  if (labels) json["eval_accuracy"] = result.accuracy;
  json["weights_hash"] = hash_text_of(state.weights_hash);
  write_result(session, options.common.json, json);
  if (communicator.rank() == 0) {
    fmt::print("step {}: evaluation loss {:.6f}", state.step, result.loss);
    if (labels) fmt::print(", accuracy {:.4f}", result.accuracy);
    fmt::print(" on {} samples\n", result.samples);
    std::fflush(stdout);
  }
  return ExitCode::kOk;
}

}  // namespace

void add_eval_command(CLI::App& app, Command& selected) {
  auto options = std::make_shared<EvalCommandOptions>();
  CLI::App* command = app.add_subcommand("eval", "Evaluate a checkpoint on the evaluation set");
  add_common_options(*command, options->common);
  command
      ->add_option(
          "--checkpoint",
          options->checkpoint,
          "A checkpoint, checkpoints/best, a checkpoints folder or a run folder (the newest)")
      ->required();
  command->callback([options, &selected] {
    selected = [options](Session& session) { return evaluate(session, *options); };
  });
}

}  // namespace lockstep
