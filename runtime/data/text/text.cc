// Plain text as bytes: every byte is a token, the vocabulary is 256.
#include <memory>
#include <utility>

#include "runtime/config/limits.h"
#include "runtime/data/format.h"
#include "runtime/data/text/sequence.h"

namespace lockstep {
namespace {

constexpr int64_t kByteVocabulary = 256;

std::shared_ptr<const SourceFile> open_file(const DataConfig& config,
                                            const std::string& path,
                                            const char* field) {
  auto file =
      std::make_shared<const SourceFile>(config.dir, path, field, SourceFile::Gzip::kDecompress);
  refuse_other_formats(file->bytes(), file->name());
  return file;
}

class Text final : public FileFormat<TextConfig> {
 public:
  using FileFormat::FileFormat;

  void check() const override {
    check_eval_split("data.text", config_.eval, config_.eval_fraction);
  }
  void check_for_model(const ModelTraits& model) const override {
    if (model.text_task != TextTask::kNextToken)
      throw ConfigError(
          "data: value is data.text; allowed: with a model that predicts the next token; bytes have no "
          "token that hides others: `lockstep data tokenize` makes data.tokens of a text");
    if (model.outputs != 0 && model.outputs < kByteVocabulary)
      model.refuse(model.outputs_field,
                   model.outputs,
                   "output",
                   "0 (from the data), or ",
                   "at least 256 with data.text, whose tokens are bytes");
  }

  bool gives(ModelInput input) const override { return input == ModelInput::kTokens; }
  bool has_byte_tokens() const override { return true; }
  bool has_eval() const override { return !config_.eval.empty() || config_.eval_fraction > 0; }

  // Samples as in sequence.h, shifted from epoch to epoch when shuffling. Without a file of its own
  // the evaluation set is the last eval_fraction of the training file.
  OpenedSource open(const ModelTraits& model, uint64_t seed, bool need_train) const override {
    const bool hold_out = config_.eval.empty() && config_.eval_fraction > 0;
    OpenedData opened;
    if (need_train || hold_out) {
      const auto file = open_file(data_, config_.train, "text.train");
      const auto bytes = file->bytes();
      const size_t held_out =
          hold_out ? static_cast<size_t>(static_cast<double>(bytes.size()) * config_.eval_fraction)
                   : 0;
      const size_t border = bytes.size() - held_out;
      if (need_train)
        opened.train =
            make_sequence_dataset(file, {bytes.first(border), 1}, model, seed, data_.shuffle);
      if (hold_out)
        opened.eval = make_sequence_dataset(file, {bytes.subspan(border), 1}, model, seed, false);
    }
    if (!config_.eval.empty()) {
      const auto file = open_file(data_, config_.eval, "text.eval");
      opened.eval = make_sequence_dataset(file, {file->bytes(), 1}, model, seed, false);
    }
    DataSummary& summary = opened.summary;
    summary.features = model.context;
    summary.classes = model.outputs > 0 ? model.outputs : kByteVocabulary;
    if (opened.train != nullptr) summary.train_samples = opened.train->samples();
    if (opened.eval != nullptr) summary.eval_samples = opened.eval->samples();
    summary.description = fmt::format("text: {} training and {} evaluation samples of {} bytes",
                                      summary.train_samples,
                                      summary.eval_samples,
                                      model.context);
    return opened;
  }

  AssumedData assume(const MissingFile& missing) const override {
    if (missing.model().outputs > 0) return missing.with_outputs_of_model("tokens");
    return {fmt::format("{} tokens, the values of a byte", kByteVocabulary), kByteVocabulary};
  }
};

}  // namespace

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data, const TextConfig& text) {
  return std::make_unique<Text>(data, text);
}

}  // namespace lockstep
