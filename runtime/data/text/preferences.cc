// data.preferences: prompts, each with an answer that people prefer and one that they do not.
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/config/limits.h"
#include "runtime/data/format.h"
#include "runtime/data/source_file.h"
#include "runtime/data/tables/table_columns.h"
#include "runtime/data/text/data_tokenizer.h"
#include "runtime/data/text/encoder_threads.h"
#include "runtime/data/text/json_lines.h"
#include "runtime/data/text/preference_samples.h"

namespace lockstep::data {
namespace {

constexpr char kTokenizerField[] = "data.preferences.tokenizer";
constexpr char kPairs[] = "pairs of answers";

// A record, and the result of reading it.
struct Record {
  std::string_view text;
  int64_t line = 0;  // on which it begins, from 1
  ConversationTokens chosen = {}, rejected = {};
  std::string problem = {};  // not empty: it is a bad record
  std::string failure = {};  // not empty: the run fails
};

class Preferences final : public TextFormat<PreferencesConfig> {
 public:
  using TextFormat::TextFormat;

  bool provides(config::TargetKind kind, config::ModelInput /*input*/) const override {
    return kind == config::TargetKind::kPreference;
  }
  void check() const override {
    for (const auto& [field, name] : {std::pair("prompt", config_.prompt),
                                      std::pair("chosen", config_.chosen),
                                      std::pair("rejected", config_.rejected)})
      if (name.empty())
        config::refuse_value(
            fmt::format("data.preferences.{}", field), in_quotes(""), "the name of a field");
  }
  void check_for_model(const config::ModelTraits& model) const override {
    if (model.text_task != config::TextTask::kAnswers &&
        model.text_task != config::TextTask::kRewards)
      throw ConfigError(
          "data: value is data.preferences; allowed: with a decoder, model.llama or model.gpt");
  }

  OpenedSource open(const config::ModelTraits& model,
                    uint64_t /*seed*/,
                    bool need_train) const override {
    const auto tokenizer = open_data_tokenizer(data_, config_.tokenizer, kTokenizerField);
    const chat::ChatFiles files = chat::read_chat_files(path_in_data(data_, config_.tokenizer),
                                                        path_in_data(data_, config_.chat_template));
    OpenedData opened;
    DataSummary& summary = opened.summary;
    const auto open_set = [&](const std::string& path, const char* field) {
      return open_file(path, field, model, *tokenizer, files, &summary);
    };
    if (need_train) opened.train = open_set(config_.train, "preferences.train");
    if (has_eval()) opened.eval = open_set(config_.eval, "preferences.eval");
    summary.features = model.context;
    if (model.text_task == config::TextTask::kRewards)
      summary.vocabulary = model.vocabulary > 0 ? model.vocabulary : tokenizer->id_limit();
    else
      summary.classes = model.outputs > 0 ? model.outputs : tokenizer->id_limit();
    summary.kind = kPairs;
    summary.unit = "pairs";
    summary.details = fmt::format(" of {} tokens, vocabulary {}",
                                  model.context,
                                  std::max(summary.vocabulary, summary.classes));
    describe(&opened);
    return opened;
  }

  PlaceholderData make_placeholder(const MissingFile& missing) const override {
    PlaceholderData placeholder;
    placeholder.what = kPairs;
    placeholder.texts = 2;
    const int64_t vocabulary = placeholder_vocabulary(data_, config_.tokenizer, missing);
    (missing.model().text_task == config::TextTask::kRewards ? placeholder.vocabulary
                                                             : placeholder.outputs) = vocabulary;
    return placeholder;
  }

 private:
  std::unique_ptr<Dataset> open_file(const std::string& path,
                                     const char* field,
                                     const config::ModelTraits& model,
                                     const tokenizer::Tokenizer& tokenizer,
                                     const chat::ChatFiles& files,
                                     DataSummary* summary) const {
    const SourceFile file(data_.dir, path, field, SourceFile::Gzip::kDecompress);
    std::vector<Record> records;
    JsonRecords reader(text_in(file.bytes(), file.name()), file.name());
    for (std::string_view record; reader.next(&record);)
      records.push_back({.text = record, .line = reader.number()});
    const ConversationEncoder encoder(tokenizer, files, /*whole_loss=*/false);
    EncoderThreads threads(data_, tokenizer);
    threads.for_each(static_cast<int64_t>(records.size()),
                     [&](tokenizer::TokenEncoder& ids, int64_t i) {
                       read_record(encoder, files, ids, &records[static_cast<size_t>(i)]);
                     });
    auto store = store_records(file.name(), model, records, summary);
    const int64_t vocabulary =
        model.text_task == config::TextTask::kRewards ? model.vocabulary : model.outputs;
    if (vocabulary > 0 && store->largest_id() >= vocabulary)
      throw DataError("{}: has a token {}; allowed: below {}, because {}",
                      file.name(),
                      store->largest_id(),
                      vocabulary,
                      model.describe_count(model.vocabulary_field, vocabulary, "token"));
    if (store->cut() > 0)
      summary->warnings.push_back(fmt::format(
          "{}: {} of {} pairs have a text that is longer than the context of {} tokens (the "
          "longest has {}) and is truncated",
          file.name(),
          store->cut(),
          store->pairs(),
          model.context,
          store->longest()));
    return make_preference_dataset(std::move(store), model);
  }

  std::shared_ptr<PreferenceStore> store_records(const std::string& name,
                                                 const config::ModelTraits& model,
                                                 std::vector<Record>& records,
                                                 DataSummary* summary) const {
    const bool rewards = model.text_task == config::TextTask::kRewards;
    // The last token of an answer is only a target.
    auto store = std::make_shared<PreferenceStore>(model.context + (rewards ? 0 : 1), rewards);
    BadRecordLog bad(data_, name);
    for (size_t i = 0; i < records.size(); ++i) {
      Record& record = records[i];
      if (!record.failure.empty()) throw DataError("{}:{}: {}", name, record.line, record.failure);
      if (record.problem.empty())
        record.problem =
            store->add(record.chosen, record.rejected, record.line, static_cast<int64_t>(i));
      if (!record.problem.empty()) {
        bad.add(record.line, record.problem);
      } else {
        for (int64_t times = bad.take_pending(); times > 0; --times) store->add_last_again();
      }
      record = {};
    }
    bad.require_fraction(static_cast<int64_t>(records.size()));
    summary->bad_records += bad.count();
    if (store->pairs() == 0) throw DataError("{}: has no pairs of answers", name);
    for (int64_t times = bad.take_pending(); times > 0; --times) store->add_last_again();
    return store;
  }

  void read_record(const ConversationEncoder& encoder,
                   const chat::ChatFiles& files,
                   tokenizer::TokenEncoder& ids,
                   Record* record) const {
    static const ConversationsConfig kNames;
    Preference preference;
    record->problem = read_preference(record->text, config_, kNames, &preference);
    if (!record->problem.empty()) return;
    if (!files.chat_template && !preference.chosen.uses_texts(false)) {
      record->failure =
          "has messages, but the tokenizer has no chat template; set "
          "data.preferences.chat_template";
      return;
    }
    try {
      record->chosen = encoder.encode(preference.chosen, ids);
      record->rejected = encoder.encode(preference.rejected, ids);
    } catch (const chat::MessagesRejected& error) {
      record->problem = error.what();
    } catch (const DataError& error) {
      record->failure = error.what();
    }
  }
};

}  // namespace

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data,
                                              const PreferencesConfig& config) {
  return std::make_unique<Preferences>(data, config);
}

}  // namespace lockstep::data
