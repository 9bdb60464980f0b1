#include "launcher/commands/evaluation.h"

#include "collectives/agreement.h"
#include "collectives/find_topology.h"
#include "launcher/commands/checkpoint_config.h"
#include "launcher/commands/results.h"
#include "runtime/base/log.h"
#include "runtime/base/threads.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/run/same_run.h"
#include "runtime/run/threads.h"
#include "runtime/train/checkpoints/initialize.h"
#include "runtime/train/checkpoints/weights.h"

namespace lockstep {

void add_evaluation_options(CommandSpec& command, EvaluationOptions& options) {
  add_common_options(command, options.common);
  command.add("--checkpoint",
              &options.checkpoint,
              "A checkpoint, checkpoints/best, a checkpoints folder or a run folder (the newest)",
              {.required = true});
  command.add("--average",
              &options.average,
              "Take the average of the weights (train.ema_decay) that the checkpoint has");
}

EvaluationRun::EvaluationRun(Session& session, const EvaluationOptions& options, RunPurpose purpose)
    : device_(session, options.common) {
  Communicator& communicator = session.communicator();
  const CpuShare share = share_cpus(communicator);
  const Topology topology = find_topology(communicator);
  const auto check_fit = [&] { check_memory(assembly_, session.local_ranks(), device_.limits()); };
  RunConfig config;
  run_on_all(communicator, [&] {
    check_result_path("--json", options.common.json);
    config = read_config(options.common);
  });
  check_same_config(communicator, config);
  communicator.set_files_timeout_s(config.comm.files_timeout_s);
  run_on_all(communicator, [&] {
    set_compute_threads(choose_threads(config, share));
    const bool asks = depends_on_checkpoint(config);
    if (asks) {
      const std::filesystem::path folder = resolve_checkpoint(options.checkpoint);
      state_ = read_state(folder);
      if (adopt_recorded_parameters(state_, config.model) && communicator.rank() == 0)
        warn_of_older_revision(folder.string());
    }
    assembly_ = assemble(
        std::move(config), topology, purpose, device_.device().ops(), asks ? &state_ : nullptr);
    take_contents(assembly_.data);
    check_fit();
  });
  check_same_data(communicator, assembly_.data.summary);
  device_.open(assembly_.config, assembly_.training, assembly_.plan.topology);
  run_on_all(communicator, check_fit);  // beside what the libraries have taken
  if (communicator.rank() == 0)
    for (const auto* warnings : {&assembly_.data.summary.doubts, &assembly_.warnings})
      for (const std::string& warning : *warnings) log_warn("{}", warning);
  parts_.emplace(parts_of(assembly_, communicator, device_.slices(), device_.backend()));
  run_on_all(communicator, [&] {
    memory_ = allocate_run(parts_->backend, assembly_.plan);
    const std::filesystem::path folder = resolve_checkpoint(options.checkpoint);
    state_ = read_state(folder);
    const ParameterLayout& layout = assembly_.plan.layout;
    const std::vector<NamedSlice> slices = named_slices(layout);
    HostWeights weights(*parts_, memory_);
    if (options.average) {
      read_average(folder, state_, slices, {weights.data(), static_cast<size_t>(layout.elements)});
    } else {
      read_model(folder, state_, slices, weights.data());
    }
    weights.write();
  });
}

}  // namespace lockstep
