#include "launcher/run/evaluation.h"

#include <utility>

#include "collectives/agree/agreement.h"
#include "launcher/command_line/config_source.h"
#include "launcher/command_line/results.h"
#include "launcher/run/checkpoint_config.h"
#include "runtime/base/log.h"
#include "runtime/base/threads.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/data/images/folder_layout.h"
#include "runtime/run/lanes.h"
#include "runtime/run/precision.h"
#include "runtime/run/same_run.h"
#include "runtime/run/threads.h"
#include "runtime/train/state/initialize.h"
#include "runtime/train/state/weights.h"

namespace lockstep::launcher {

void add_evaluation_options(CommandSpec& command, EvaluationOptions& options) {
  add_common_options(command, options.common);
  command.add(
      "--checkpoint",
      &options.checkpoint,
      "A checkpoint, checkpoints/best, a checkpoints folder or a run folder (the newest); if "
      "CONFIG is a run folder, by default its best checkpoint, or its newest if it has none",
      {.also = "ckpt weights model_path load resume from checkpoint_path checkpoint_dir "
               "ckpt_path pretrained run"});
  command.add("--average",
              &options.average,
              "Use the checkpoint's average of the weights (train.ema_decay)");
  command.add("--report",
              &options.report,
              "Also print precision, recall and F1 of each class and the confusion matrix, or for "
              "values the mean absolute error, root mean squared error and R squared; with --json "
              "they are in 'report'");
}

namespace {

// What the checkpoint's run recorded, if the config leaves a choice to it.
RecordedChoices recorded_by(const std::filesystem::path& folder, const RunConfig& config) {
  if (!has_auto_choice(config)) return {};
  return recorded_choices(checkpoint::read_state(folder), folder.string(), config);
}

// The checkpoint of the options, which rank 0 finds: a run under way may write a newer one.
std::filesystem::path find_checkpoint(collectives::Communicator& communicator,
                                      const EvaluationOptions& options) {
  std::string found;
  collectives::run_on_root(communicator, [&] {
    const auto chosen = choose_checkpoint(options.checkpoint, options.common.config);
    if (!chosen)
      throw ConfigError(
          "--checkpoint is missing; give it, or a run folder in place of the config file");
    found = chosen->string();
  });
  return collectives::broadcast_text(communicator, found);
}

}  // namespace

EvaluatedConfig read_evaluated_config(Session& session,
                                      const EvaluationOptions& options,
                                      run::RunPurpose purpose) {
  collectives::Communicator& communicator = session.communicator();
  run::OpenedConfig given;
  collectives::run_on_all(communicator, [&] {
    require_result_path("--json", options.common.json);
    given = read_config(options.common, "", purpose);
    if (purpose != run::RunPurpose::kPredict) return;
    data::FoundFolders found = data::find_inputs(std::move(given.config.data));
    given.config.data = std::move(found.data);
    if (communicator.rank() == 0 && !found.text.empty()) log_info("{}", found.text);
  });
  const std::filesystem::path folder = find_checkpoint(communicator, options);
  std::unique_ptr<exec::Device> device = choose_device(session, options.common);
  run::ChosenPrecision chosen;
  collectives::run_on_all(communicator, [&] {
    const exec::OpSet& ops = device->ops();
    const RecordedChoices recorded = recorded_by(folder, given.config);
    chosen = run::choose_precision(
        run::choose_lanes(given, recorded.lanes).opened, purpose, ops, recorded.precision);
  });
  run::check_same_config(communicator, chosen.opened.config);
  if (communicator.rank() == 0 && chosen.worth_logging) log_info("precision: {}", chosen.text());
  if (communicator.rank() == 0 && given.config.output.prometheus_port > 0)
    log_info("output.prometheus_port: not used, because only train serves metrics");
  return {std::move(chosen.opened), folder, std::move(device)};
}

EvaluationRun::EvaluationRun(Session& session,
                             const EvaluationOptions& options,
                             EvaluatedConfig evaluated,
                             run::RunPurpose purpose)
    : opened_(std::move(evaluated.opened)),
      checkpoint_(std::move(evaluated.checkpoint)),
      rank_(session, options.common, std::move(evaluated.device), opened_.config.comm, purpose) {
  collectives::Communicator& communicator = session.communicator();
  collectives::run_on_all(communicator, [&] {
    set_compute_threads(run::choose_threads(opened_.config, rank_.share));
    const bool needs_state = depends_on_checkpoint(opened_.config);
    if (needs_state) {
      state_ = checkpoint::read_state(checkpoint_);
      opened_ = with_recorded_missing(opened_, state_, checkpoint_.string());
      if (const auto older = with_recorded_parameters(opened_, state_)) {
        opened_ = *older;
        if (communicator.rank() == 0) warn_of_older_revision(checkpoint_.string());
      }
    }
    prepared_ = run::prepare_run(opened_,
                                 rank_.placed,
                                 purpose,
                                 rank_.device.device().ops(),
                                 {.checkpoint = needs_state ? &state_ : nullptr});
    run::add_checksums(*prepared_.data);
    rank_.require_memory(prepared_);
  });
  run::check_same_data(communicator, prepared_.data->summary);
  rank_.device.open(
      prepared_.recorded, prepared_.graphs->training, prepared_.plan.sharding.topology);
  // Again, because the device's libraries have taken memory.
  collectives::run_on_all(communicator, [&] { rank_.require_memory(prepared_); });
  if (communicator.rank() == 0)
    for (const std::string& warning : run::warnings_of(prepared_)) log_warn("{}", warning);
  context_.emplace(
      run::context_of(prepared_, communicator, rank_.device.slices(), rank_.device.backend()));
  collectives::run_on_all(communicator, [&] { read_weights(options.average); });
}

void EvaluationRun::read_weights(bool average) {
  memory_ = train::allocate_run(context_->backend, prepared_.plan);
  state_ = checkpoint::read_state(checkpoint_);
  const plan::ParameterLayout& layout = prepared_.plan.layout;
  const std::vector<checkpoint::NamedSlice> slices = train::named_slices(layout);
  train::HostWeights weights(*context_, memory_);
  if (average) {
    checkpoint::read_average(
        checkpoint_, state_, slices, {weights.data(), static_cast<size_t>(layout.elements)});
  } else {
    checkpoint::read_model(checkpoint_, state_, slices, weights.data());
  }
  weights.write();
}

}  // namespace lockstep::launcher
