// data.tagged_text: sentences of words with a tag each.
#include <memory>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/data/format.h"
#include "runtime/data/text/data_tokenizer.h"
#include "runtime/data/text/tagged_file.h"

namespace lockstep {
namespace {

constexpr char kTokenizerField[] = "data.tagged_text.tokenizer";

class TaggedText final : public FileFormat<TaggedTextConfig> {
 public:
  using FileFormat::FileFormat;

  void check() const override {
    if (config_.tag == config_.word)
      refuse_value(
          "data.tagged_text.tag",
          config_.tag,
          fmt::format("another column than data.tagged_text.word, which is {}", config_.word));
  }
  void check_for_model(const ModelTraits& model) const override {
    if (model.text_task == TextTask::kTokenClasses || model.text_task == TextTask::kHiddenStates)
      return;
    throw ConfigError(
        "data: value is data.tagged_text; allowed: with a model that predicts a class of each token, "
        "such as model.bert with task TOKEN_CLASSES");
  }

  bool gives(ModelInput input) const override { return input == ModelInput::kTokens; }

  OpenedSource open(const ModelTraits& model, uint64_t /*seed*/, bool need_train) const override {
    return open_sentences(model, need_train, model.text_task != TextTask::kHiddenStates);
  }
  OpenedSource open_inputs(const ModelTraits& model, uint64_t /*seed*/) const override {
    return open_sentences(model, /*need_train=*/false, /*with_tags=*/false);
  }

  AssumedData assume(const MissingFile& missing) const override {
    const auto listed = static_cast<int64_t>(config_.tags.size());
    AssumedData assumed;
    if (missing.model().outputs == 0 && listed > 0) {
      assumed.what = fmt::format("{} tags, as data.tagged_text.tags says", listed);
      assumed.outputs = listed;
    } else {
      assumed = missing.with_outputs_of_model("classes");
    }
    assumed.vocabulary = assumed_vocabulary(data_, config_.tokenizer, missing);
    return assumed;
  }

 private:
  // Without tags of the words, the training file is read where nothing else says how many there are.
  OpenedData open_sentences(const ModelTraits& model, bool need_train, bool with_tags) const {
    const auto tokenizer = open_data_tokenizer(data_, config_.tokenizer, kTokenizerField);
    const TextForm form(*tokenizer, /*pairs=*/false, model, kTokenizerField);
    EncoderThreads threads(data_, *tokenizer);
    const TaggedSource source{data_, config_, form, threads, with_tags};
    ClassNames tags(config_.tags, "data.tagged_text.tags");
    const bool has_tags = model.text_task == TextTask::kTokenClasses;
    if (has_tags && (with_tags || model.outputs == 0) && !tags.listed()) read_tags(source, &tags);
    OpenedData opened;
    DataSummary& summary = opened.summary;
    int64_t cut = 0;
    const auto take = [&](TaggedSamples samples, std::unique_ptr<Dataset>* dataset) {
      summary.bad_records += samples.bad_records;
      cut += samples.cut;
      summary.doubts.insert(summary.doubts.end(), samples.doubts.begin(), samples.doubts.end());
      *dataset = make_tagged_dataset(std::move(samples), model);
    };
    if (need_train)
      take(read_tagged_file(source, config_.train, "tagged_text.train", true, &tags),
           &opened.train);
    if (has_eval())
      take(read_tagged_file(source, config_.eval, "tagged_text.eval", false, &tags), &opened.eval);
    summary.features = model.context;
    summary.vocabulary = model.vocabulary > 0 ? model.vocabulary : tokenizer->id_limit();
    if (has_tags) {
      summary.classes = tags.classes();
      use_classes_of_model(model, &summary);
    }
    if (opened.train != nullptr) summary.train_samples = opened.train->samples();
    if (opened.eval != nullptr) summary.eval_samples = opened.eval->samples();
    summary.description =
        fmt::format("tagged text: {} training and {} evaluation sentences of up to {} tokens",
                    summary.train_samples,
                    summary.eval_samples,
                    model.context);
    if (summary.classes > 0) summary.description += fmt::format(", {} tags", summary.classes);
    if (cut > 0) summary.description += fmt::format("; {} were longer and are cut", cut);
    if (summary.bad_records > 0)
      summary.description += fmt::format(", {} bad records", summary.bad_records);
    return opened;
  }
};

}  // namespace

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data,
                                              const TaggedTextConfig& config) {
  return std::make_unique<TaggedText>(data, config);
}

}  // namespace lockstep
