#include "runtime/run/open_config.h"

#include <utility>

#include "runtime/data/text/data_tokenizer.h"

namespace lockstep {

OpenedConfig open_config(RunConfig config, bool run_follows) {
  const TrainConfig& train = config.train;
  RunBatches batches;
  if (run_follows)
    batches = {train.global_batch, train.lanes > 0 ? train.global_batch / train.lanes : 0};
  std::shared_ptr<const OpenedModel> model = open_model(config.model, batches);
  config.data.source = source_with_tokenizer(
      config.data.source, train.init_from, model->traits().text_task == TextTask::kMaskedTokens);
  return {std::move(config), std::move(model)};
}

OpenedConfig with_model(const OpenedConfig& opened, const ModelConfig& model) {
  OpenedConfig other = opened;
  other.config.model = model;
  other.model = reopen_model(opened.model, model);
  return other;
}

}  // namespace lockstep
