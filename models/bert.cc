// BERT (Devlin et al. 2018): not built yet.
#include "models/model.h"
#include "runtime/base/error.h"

namespace lockstep {
namespace {

class Bert final : public Model {
 public:
  explicit Bert(const BertConfig& config) : config_(config) {}
  void check() const override { throw ConfigError("model.bert: not built yet"); }
  ModelTraits traits() const override {
    return {
        .input = ModelInput::kTokens, .context = config_.context, .outputs = config_.vocabulary};
  }
  ModelConfig resolve(const ModelIo&) const override { return config_; }
  ModelIo io_of_weights(const ExtentsOf&) const override { return {}; }
  Graph build(const ModelIo&, int64_t, int64_t, const GraphOptions&) const override { return {}; }

 private:
  BertConfig config_;
};

}  // namespace

template <>
std::unique_ptr<const Model> make_model(const BertConfig& config) {
  return std::make_unique<Bert>(config);
}

}  // namespace lockstep
