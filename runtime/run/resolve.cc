#include "runtime/run/resolve.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/huggingface/lora_layers.h"
#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/config/validate.h"
#include "runtime/run/config_checks.h"

namespace lockstep::run {
namespace {

int64_t steps_of(const TrainConfig& train, int64_t samples) {
  const double steps = std::ceil(train.epochs * static_cast<double>(samples) /
                                 static_cast<double>(train.global_batch));
  const int64_t limit = config::integer_limit_of("train.steps").high;
  if (steps > static_cast<double>(limit))
    throw ConfigError("train.epochs: value is {}, which is {:.0f} steps; allowed: up to {} steps",
                      train.epochs,
                      steps,
                      limit);
  return std::max<int64_t>(static_cast<int64_t>(steps), 1);
}

models::ModelIo io_of(const data::DataSummary& summary) {
  return {.features = summary.features,
          .classes = summary.classes,
          .target_columns = summary.target_columns,
          .targets = summary.targets,
          .vocabulary = summary.vocabulary,
          .texts = summary.texts,
          .height = summary.height,
          .width = summary.width,
          .channels = summary.channels,
          .mean = summary.mean,
          .std = summary.std};
}

}  // namespace

bool ResolvedRun::samples_are_packed() const {
  const data::Dataset* const dataset = data->train ? data->train.get() : data->eval.get();
  return model->traits().input == config::ModelInput::kTokens && dataset != nullptr &&
         dataset->input().shape.rank() == 2;
}

RunConfig config_for(RunPurpose purpose, const RunConfig& config) {
  RunConfig result = config;
  if (purpose != RunPurpose::kTrain) result.comm.residual_groups = 0;
  return result;
}

ResolvedRun resolve(const OpenedConfig& opened,
                    RunPurpose purpose,
                    std::shared_ptr<data::OpenedData> data,
                    const exec::OpSet& ops,
                    const checkpoint::CheckpointState* checkpoint) {
  ResolvedRun run{.purpose = purpose,
                  .config = config_for(purpose, opened.config),
                  .model = {},
                  .data = std::move(data),
                  .io = {},
                  .ops = &ops};
  RunConfig& config = run.config;
  const bool trains = purpose == RunPurpose::kTrain;
  run.io = io_of(run.data->summary);
  config.model = opened.model->resolved(run.io);
  run.model = models::reopen_model(opened.model, config.model);
  check_class_weights(config.train, run.model->traits());
  if (trains) {
    if (config.train.steps == 0) {
      config.train.steps = steps_of(config.train, run.data->train->samples());
      config.train.epochs = 0;
    }
    config::validate_schedule_length(config.schedule, config.train.steps);
  }
  if (config.adapter.lora)
    config.adapter.lora->train_also = huggingface::train_also_with_new_heads(
        config, run.model->build(run.io, 1, graph::Purpose::kInference), checkpoint);
  return run;
}

}  // namespace lockstep::run
