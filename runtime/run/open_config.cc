#include "runtime/run/open_config.h"

#include <utility>

#include "runtime/base/log.h"
#include "runtime/data/images/folder_layout.h"
#include "runtime/data/text/data_tokenizer.h"

namespace lockstep::run {
namespace {

// Some commands open a config several times, for as many plans.
void log_once(const std::string& text) {
  static std::string last;
  if (text.empty() || text == last) return;
  last = text;
  log_info("{}", text);
}

}  // namespace

OpenedConfig open_config(RunConfig config, bool run_follows) {
  const TrainConfig& train = config.train;
  models::RunBatches batches;
  if (run_follows)
    batches = {train.global_batch,
               train.lanes > 0 ? train.global_batch / train.lanes : 0,
               std::holds_alternative<PreferencesConfig>(config.data.source)};
  std::shared_ptr<const models::OpenedModel> model = models::open_model(config.model, batches);
  config.data.source =
      data::source_with_tokenizer(config.data.source,
                                  train.init_from,
                                  model->traits().text_task == config::TextTask::kMaskedTokens);
  data::FoundFolders found = data::find_folders(std::move(config.data));
  log_once(found.text);
  config.data = std::move(found.data);
  return {std::move(config), std::move(model)};
}

OpenedConfig with_model(const OpenedConfig& opened, const ModelConfig& model) {
  OpenedConfig other = opened;
  other.config.model = model;
  other.model = models::reopen_model(opened.model, model);
  return other;
}

}  // namespace lockstep::run
