#include "runtime/run/open_config.h"

#include <utility>

#include "runtime/data/text/data_tokenizer.h"

namespace lockstep::run {

OpenedConfig open_config(RunConfig config, bool run_follows) {
  const TrainConfig& train = config.train;
  models::RunBatches batches;
  if (run_follows)
    batches = {train.global_batch, train.lanes > 0 ? train.global_batch / train.lanes : 0};
  std::shared_ptr<const models::OpenedModel> model = models::open_model(config.model, batches);
  config.data.source =
      data::source_with_tokenizer(config.data.source,
                                  train.init_from,
                                  model->traits().text_task == config::TextTask::kMaskedTokens);
  return {std::move(config), std::move(model)};
}

OpenedConfig with_model(const OpenedConfig& opened, const ModelConfig& model) {
  OpenedConfig other = opened;
  other.config.model = model;
  other.model = models::reopen_model(opened.model, model);
  return other;
}

}  // namespace lockstep::run
