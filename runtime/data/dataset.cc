#include "runtime/data/dataset.h"

#include "runtime/base/error.h"
#include "runtime/data/idx.h"
#include "runtime/data/synthetic.h"
#include "runtime/data/table.h"
#include "runtime/data/text.h"
#include "runtime/data/tokens.h"

namespace lockstep {
namespace {

template <typename Model>
const Model& need_model(const ModelConfig& model, const char* source, const char* need) {
  const Model* wanted = std::get_if<Model>(&model);
  if (wanted == nullptr) throw ConfigError("data.{} needs a model that takes {}", source, need);
  return *wanted;
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
};

}  // namespace

OpenedData open_data(const DataConfig& config,
                     const ModelConfig& model,
                     uint64_t seed,
                     bool need_train) {
  return std::visit(Opener{config, model, seed, need_train}, config.source);
}

}  // namespace lockstep
