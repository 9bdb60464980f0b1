#include "runtime/data/dataset.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/images/flattened.h"
#include "runtime/data/images/idx.h"
#include "runtime/data/synthetic.h"
#include "runtime/data/tables/table.h"
#include "runtime/data/text/text.h"
#include "runtime/data/text/tokens.h"

namespace lockstep {
namespace {

void need_input(const ModelTraits& model, ModelInput input, const char* source, const char* need) {
  if (model.input != input) throw ConfigError("data.{} needs a model that takes {}", source, need);
}

// Chooses by the kind of source.
struct Opener {
  const DataConfig& config;
  const ModelTraits& model;
  uint64_t seed;
  bool need_train;

  OpenedData operator()(const IdxConfig& idx) const {
    need_input(model, ModelInput::kFeatures, "idx", "features");
    return open_idx(config, idx, model, need_train);
  }
  OpenedData operator()(const TableConfig& table) const {
    need_input(model, ModelInput::kFeatures, "table", "features");
    return open_table(config, table, model, need_train);
  }
  OpenedData operator()(const TextConfig& text) const {
    need_input(model, ModelInput::kTokens, "text", "tokens");
    return open_text(config, text, model, seed, need_train);
  }
  OpenedData operator()(const TokensConfig& tokens) const {
    need_input(model, ModelInput::kTokens, "tokens", "tokens");
    return open_tokens(config, tokens, model, seed, need_train);
  }
  OpenedData operator()(const SyntheticConfig& synthetic) const {
    return open_synthetic(synthetic, model, seed, need_train);
  }
  template <typename Images>
  OpenedData operator()(const Images&) const {
    need_input(model, ModelInput::kFeatures, "image sources", "images or features");
    return flatten_images(open_images(config, seed, need_train), model);
  }
};

}  // namespace

OpenedData open_data(const DataConfig& config,
                     const ModelTraits& model,
                     uint64_t seed,
                     bool need_train) {
  if (model.wants_images()) return open_images(config, seed, need_train);
  return std::visit(Opener{config, model, seed, need_train}, config.source);
}

}  // namespace lockstep
