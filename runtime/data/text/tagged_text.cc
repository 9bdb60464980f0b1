// data.tagged_text: sentences whose words each have a tag.
#include <memory>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/data/format.h"
#include "runtime/data/source_file.h"
#include "runtime/data/text/class_names.h"
#include "runtime/data/text/data_tokenizer.h"
#include "runtime/data/text/tagged_file.h"

namespace lockstep::data {
namespace {

constexpr char kTokenizerField[] = "data.tagged_text.tokenizer";
const TextWords kWords = {"tagged text", "sentences", "tags"};

class TaggedText final : public TextFormat<TaggedTextConfig> {
 public:
  using TextFormat::TextFormat;

  void check() const override {
    if (config_.tag == config_.word)
      config::refuse_value("data.tagged_text.tag",
                           config_.tag,
                           "a column other than data.tagged_text.word, which is {}",
                           config_.word);
  }
  bool provides(config::TargetKind kind, config::ModelInput /*input*/) const override {
    return kind == config::TargetKind::kTokenClasses || kind == config::TargetKind::kNone;
  }
  void check_for_model(const config::ModelTraits& model) const override {
    if (model.text_task == config::TextTask::kTokenClasses ||
        model.text_task == config::TextTask::kHiddenStates)
      return;
    throw ConfigError(
        "data.tagged_text: needs a model that predicts a class of each token, such as model.bert "
        "with task TOKEN_CLASSES");
  }

  OpenedSource open(const config::ModelTraits& model,
                    uint64_t /*seed*/,
                    bool need_train) const override {
    return open_sentences(
        model,
        need_train,
        model.text_task == config::TextTask::kHiddenStates ? TagUse::kIgnored : TagUse::kRequired);
  }
  OpenedSource open_inputs(const config::ModelTraits& model, uint64_t /*seed*/) const override {
    // Tags need their names, which the training file may have.
    const bool read =
        model.text_task == config::TextTask::kTokenClasses &&
        (!config_.tags.empty() || model.outputs == 0 || is_source_file(data_.dir, config_.train));
    return open_sentences(model, /*need_train=*/false, read ? TagUse::kOptional : TagUse::kIgnored);
  }

  PlaceholderData make_placeholder(const MissingFile& missing) const override {
    PlaceholderData placeholder =
        placeholder_with_classes(missing, config_.tags, kWords, "data.tagged_text.tags");
    placeholder.vocabulary = placeholder_vocabulary(data_, config_.tokenizer, missing);
    return placeholder;
  }

 private:
  // Even without training, the training file is read if only it has the tags.
  OpenedData open_sentences(const config::ModelTraits& model, bool need_train, TagUse use) const {
    const auto tokenizer = open_data_tokenizer(data_, config_.tokenizer, kTokenizerField);
    const TextForm form(*tokenizer, /*pairs=*/false, model, kTokenizerField);
    EncoderThreads threads(data_, *tokenizer);
    const TaggedSource source{data_, config_, form, threads, use};
    ClassNames tags(config_.tags, "data.tagged_text.tags");
    const bool has_tags = model.text_task == config::TextTask::kTokenClasses;
    if (has_tags && use != TagUse::kIgnored && !tags.listed()) read_tags(source, &tags);
    OpenedData opened;
    int64_t cut = 0;
    const auto take = [&](TaggedSamples samples, std::unique_ptr<Dataset>* dataset) {
      cut += add_to_summary(samples, &opened.summary);
      *dataset = make_tagged_dataset(std::move(samples), model);
    };
    if (need_train)
      take(read_tagged_file(source, config_.train, "tagged_text.train", &tags), &opened.train);
    if (has_eval())
      take(read_tagged_file(source, config_.eval, "tagged_text.eval", &tags), &opened.eval);
    opened.summary.labels_from = config_.train;
    summarise_texts(kWords, model, tokenizer->id_limit(), has_tags ? &tags : nullptr, cut, &opened);
    return opened;
  }
};

}  // namespace

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data,
                                              const TaggedTextConfig& config) {
  return std::make_unique<TaggedText>(data, config);
}

}  // namespace lockstep::data
