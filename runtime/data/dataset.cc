#include "runtime/data/dataset.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/config/validate_data.h"
#include "runtime/data/images/flattened.h"
#include "runtime/data/images/idx.h"
#include "runtime/data/synthetic.h"
#include "runtime/data/tables/table.h"
#include "runtime/data/text/text.h"
#include "runtime/data/text/tokens.h"

namespace lockstep {
namespace {

template <typename Model>
const Model& need_model(const ModelConfig& model, const char* source, const char* need) {
  const Model* wanted = std::get_if<Model>(&model);
  if (wanted == nullptr) throw ConfigError("data.{} needs a model that takes {}", source, need);
  return *wanted;
}

// Pictures as features, normalised here since the model does not do it.
OpenedData open_flattened(const DataConfig& config,
                          const MlpConfig& model,
                          uint64_t seed,
                          bool need_train) {
  if (model.loss != Loss::kSoftmaxCrossEntropy)
    throw ConfigError(
        "data: images have class labels: model.mlp.loss must be SOFTMAX_CROSS_ENTROPY");
  OpenedData opened = open_images(config, seed, need_train);
  DataSummary& summary = opened.summary;
  if (model.outputs > 0) {
    if (summary.classes > model.outputs)
      throw DataError(
          "the data have {} classes; model.mlp.outputs is {}, and must be at least that",
          summary.classes,
          model.outputs);
    summary.classes = model.outputs;
  }
  for (std::unique_ptr<Dataset>* dataset : {&opened.train, &opened.eval})
    if (*dataset != nullptr)
      *dataset = flatten_images(std::move(*dataset), summary.mean, summary.std);
  summary.height = summary.width = summary.channels = 0;
  summary.mean.clear();
  summary.std.clear();
  return opened;
}

// Chooses by the kind of source.
struct Opener {
  const DataConfig& config;
  const ModelConfig& model;
  uint64_t seed;
  bool need_train;

  OpenedData operator()(const IdxConfig& idx) const {
    return open_idx(
        config, idx, need_model<MlpConfig>(model, "idx", "features: model.mlp"), need_train);
  }
  OpenedData operator()(const TableConfig& table) const {
    return open_table(
        config, table, need_model<MlpConfig>(model, "table", "features: model.mlp"), need_train);
  }
  OpenedData operator()(const TextConfig& text) const {
    return open_text(
        config, text, need_model<GptConfig>(model, "text", "tokens: model.gpt"), seed, need_train);
  }
  OpenedData operator()(const TokensConfig& tokens) const {
    return open_tokens(config,
                       tokens,
                       need_model<GptConfig>(model, "tokens", "tokens: model.gpt"),
                       seed,
                       need_train);
  }
  OpenedData operator()(const SyntheticConfig& synthetic) const {
    return open_synthetic(synthetic, model, seed, need_train);
  }
  template <typename Images>
  OpenedData operator()(const Images&) const {
    return open_flattened(config,
                          need_model<MlpConfig>(model, "image sources", "images or features"),
                          seed,
                          need_train);
  }
};

}  // namespace

OpenedData open_data(const DataConfig& config,
                     const ModelConfig& model,
                     uint64_t seed,
                     bool need_train) {
  if (wants_images(model)) return open_images(config, seed, need_train);
  return std::visit(Opener{config, model, seed, need_train}, config.source);
}

}  // namespace lockstep
