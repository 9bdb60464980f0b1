// data.labelled_text: tables of texts, or of pairs of texts, each with a class or a value.
#include <memory>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/data/format.h"
#include "runtime/data/source_file.h"
#include "runtime/data/text/class_names.h"
#include "runtime/data/text/data_tokenizer.h"
#include "runtime/data/text/labelled_file.h"
#include "runtime/data/text/text_table.h"

namespace lockstep::data {
namespace {

constexpr char kTokenizerField[] = "data.labelled_text.tokenizer";

class LabelledText final : public TextFormat<LabelledTextConfig> {
 public:
  using TextFormat::TextFormat;

  void check() const override {
    text_table_kind(config_.train, "data.labelled_text.train");
    if (has_eval()) text_table_kind(config_.eval, "data.labelled_text.eval");
    if (config_.text.empty())
      config::refuse_value(
          "data.labelled_text.text", in_quotes(""), "the name or number of a column");
    if (config_.label.empty())
      config::refuse_value(
          "data.labelled_text.label", in_quotes(""), "the name or number of a column");
    refuse_same_column("text", config_.text, "label", config_.label);
    refuse_same_column("second_text", config_.second_text, "label", config_.label);
    refuse_same_column("second_text", config_.second_text, "text", config_.text);
  }
  bool provides(config::TargetKind kind, config::ModelInput /*input*/) const override {
    return kind == config::TargetKind::kClass || kind == config::TargetKind::kValues ||
           kind == config::TargetKind::kNone || kind == config::TargetKind::kSimilarity;
  }
  void check_for_model(const config::ModelTraits& model) const override {
    if (model.text_task != config::TextTask::kSequenceClass &&
        model.text_task != config::TextTask::kSequenceValues && !has_no_labels(model))
      throw ConfigError(
          "data.labelled_text: needs a model that predicts a class or values of each text, such as "
          "model.bert with task SEQUENCE_CLASSES");
    if (model.text_task != config::TextTask::kSequenceValues) return;
    if (!config_.labels.empty())
      throw ConfigError(
          "data.labelled_text.labels: given, but the model predicts values; allowed: unset");
    if (model.outputs > 1)
      model.refuse(model.outputs_field,
                   model.outputs,
                   "output",
                   "0 or ",
                   "1 with data.labelled_text, which has one value for each text");
  }

  OpenedSource open(const config::ModelTraits& model,
                    uint64_t /*seed*/,
                    bool need_train) const override {
    if (model.text_task == config::TextTask::kEmbeddings)
      throw ConfigError(
          "data.labelled_text: has single texts, for `lockstep predict`; to train or evaluate a "
          "model with task EMBEDDINGS, use data.text_pairs");
    return open_texts(
        model,
        need_train,
        has_no_labels(model) ? LabelledParts::kTexts : LabelledParts::kTextsAndLabels);
  }
  OpenedSource open_inputs(const config::ModelTraits& model, uint64_t /*seed*/) const override {
    // Labels need the names of the classes, which the training file may have.
    const bool has_classes = model.text_task == config::TextTask::kSequenceClass;
    const bool known = !has_classes || !config_.labels.empty() || model.outputs == 0 ||
                       is_source_file(data_.dir, config_.train);
    const bool read = known && !has_no_labels(model);
    return open_texts(model,
                      /*need_train=*/false,
                      read ? LabelledParts::kTextsAndAnyLabels : LabelledParts::kTexts);
  }

  PlaceholderData make_placeholder(const MissingFile& missing) const override {
    PlaceholderData placeholder;
    if (missing.model().text_task == config::TextTask::kSequenceValues) {
      placeholder.what = "a value for each text";
      placeholder.outputs = 1;
    } else {
      placeholder =
          placeholder_with_classes(missing, config_.labels, words(), "data.labelled_text.labels");
    }
    placeholder.vocabulary = placeholder_vocabulary(data_, config_.tokenizer, missing);
    return placeholder;
  }

 private:
  static bool has_no_labels(const config::ModelTraits& model) {
    return model.text_task == config::TextTask::kHiddenStates ||
           model.text_task == config::TextTask::kEmbeddings;
  }
  static void refuse_same_column(const char* field,
                                 const std::string& column,
                                 const char* other,
                                 const std::string& other_column) {
    if (column == other_column)
      config::refuse_value(fmt::format("data.labelled_text.{}", field),
                           in_quotes(column),
                           "a column other than that of data.labelled_text.{}",
                           other);
  }

  // Even without training, the training file is read if only it has the classes.
  OpenedData open_texts(const config::ModelTraits& model,
                        bool need_train,
                        LabelledParts parts) const {
    const auto tokenizer = open_data_tokenizer(data_, config_.tokenizer, kTokenizerField);
    const TextForm form(*tokenizer, !config_.second_text.empty(), model, kTokenizerField);
    EncoderThreads threads(data_, *tokenizer);
    const LabelledSource source{data_, config_, model, form, threads};
    const bool has_classes = model.text_task == config::TextTask::kSequenceClass;
    const bool needs_classes = has_classes && parts != LabelledParts::kTexts;
    ClassNames classes(config_.labels, "data.labelled_text.labels");
    OpenedData opened;
    int64_t cut = 0;
    const auto take = [&](LabelledSamples samples, std::unique_ptr<Dataset>* dataset) {
      cut += add_to_summary(samples, &opened.summary);
      *dataset = make_labelled_dataset(std::move(samples), model);
    };
    if (need_train)
      take(read_labelled_file(source, config_.train, "labelled_text.train", true, parts, &classes),
           &opened.train);
    else if (needs_classes && !classes.listed())  // its labels define the classes
      read_labelled_file(
          source, config_.train, "labelled_text.train", true, LabelledParts::kLabels, &classes);
    if (has_eval())
      take(read_labelled_file(source, config_.eval, "labelled_text.eval", false, parts, &classes),
           &opened.eval);
    if (model.text_task == config::TextTask::kSequenceValues) opened.summary.target_columns = 1;
    opened.summary.labels_from = config_.train;
    summarise_texts(
        words(), model, tokenizer->id_limit(), has_classes ? &classes : nullptr, cut, &opened);
    return opened;
  }

  TextWords words() const {
    return {config_.second_text.empty() ? "labelled texts" : "labelled pairs of texts",
            "samples",
            "classes"};
  }
};

}  // namespace

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data,
                                              const LabelledTextConfig& config) {
  return std::make_unique<LabelledText>(data, config);
}

}  // namespace lockstep::data
