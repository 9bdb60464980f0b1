// data.conversations: messages, or prompts and answers. A language model learns the answers.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/config/limits.h"
#include "runtime/data/format.h"
#include "runtime/data/held_out.h"
#include "runtime/data/source_file.h"
#include "runtime/data/tables/table_columns.h"
#include "runtime/data/text/conversation_samples.h"
#include "runtime/data/text/data_tokenizer.h"
#include "runtime/data/text/encoder_threads.h"
#include "runtime/data/text/json_lines.h"

namespace lockstep::data {
namespace {

constexpr char kTokenizerField[] = "data.conversations.tokenizer";

// A record, with the number of the line on which it begins, from 1.
struct Line {
  std::string_view text;
  int64_t number = 0;
};

std::vector<Line> lines_of(std::string_view text, const std::string& name) {
  std::vector<Line> lines;
  JsonRecords reader(text, name);
  for (std::string_view record; reader.next(&record);) lines.push_back({record, reader.number()});
  return lines;
}

// The result of reading a line.
struct ReadLine {
  ConversationTokens tokens;
  std::string problem;  // not empty: the line is a bad record
  std::string failure;  // not empty: the run fails
  std::string unread;   // see Conversation
  ConversationForm form = ConversationForm::kMessages;
};

bool is_plain(ConversationForm form) {
  return form == ConversationForm::kMessages || form == ConversationForm::kTexts;
}

// A file in Alpaca's or ShareGPT's form has no other records: they would be another file's. Marks
// those as bad.
void require_one_form(const std::vector<Line>& lines, std::vector<ReadLine>& read) {
  const auto good = [](const ReadLine& line) { return line.problem.empty(); };
  const auto first = std::ranges::find_if(read, good);
  if (first == read.end()) return;
  for (ReadLine& line : read)
    if (good(line) && line.form != first->form && !(is_plain(line.form) && is_plain(first->form)))
      line.problem = fmt::format("is {}, but line {} is {}; allowed: one form in a file",
                                 words_for(line.form),
                                 lines[static_cast<size_t>(first - read.begin())].number,
                                 words_for(first->form));
}

// "52002 in Alpaca's form (instruction, input, output)" for each form.
std::string describe_forms(const std::vector<ReadLine>& read) {
  std::map<ConversationForm, int64_t> counts;
  for (const ReadLine& line : read)
    if (line.problem.empty()) ++counts[line.form];
  std::string text;
  for (const auto& [form, count] : counts)
    append_item(text, fmt::format("{} {}", count, words_for(form)));
  return text;
}

// The lines of a training file: those that train, or those that are held out.
enum class LinePart { kAll, kTrained, kHeldOut };

class Conversations final : public TextFormat<ConversationsConfig> {
 public:
  using TextFormat::TextFormat;

  void check() const override {
    for (const auto& [field, name] : {std::pair("messages", config_.messages),
                                      std::pair("prompt", config_.prompt),
                                      std::pair("answer", config_.answer),
                                      std::pair("role", config_.role),
                                      std::pair("content", config_.content),
                                      std::pair("user_role", config_.user_role),
                                      std::pair("assistant_role", config_.assistant_role)})
      if (name.empty())
        config::refuse_value(std::string("data.conversations.") + field, in_quotes(""), "a name");
  }
  void check_for_model(const config::ModelTraits& model) const override {
    if (model.text_task != config::TextTask::kNextToken)
      throw ConfigError(
          "data: value is data.conversations; allowed: with a model that predicts the next token, "
          "such as model.llama or model.gpt");
    if (shares_samples() && !model.tells_documents_apart)
      config::refuse_value(
          "data.conversations.padded",
          "false",
          "true, because in model.{} conversations of the same sample would see each other",
          model.section);
  }

  bool shares_samples() const override { return !config_.padded; }
  bool holds_out() const override { return true; }

  OpenedSource open(const config::ModelTraits& model,
                    uint64_t seed,
                    bool need_train) const override {
    const auto tokenizer = open_data_tokenizer(data_, config_.tokenizer, kTokenizerField);
    const chat::ChatFiles files = chat::read_chat_files(path_in_data(data_, config_.tokenizer),
                                                        path_in_data(data_, config_.chat_template));
    if (config_.texts_as_messages && !files.chat_template)
      config::refuse_value(
          "data.conversations.texts_as_messages",
          "true",
          "false, or true with a chat template (data.conversations.chat_template)");
    OpenedData opened;
    DataSummary& summary = opened.summary;
    std::string packing_note;
    // `part`: of the lines, or all of them.
    const auto open_set =
        [&](const std::string& path, const char* field, bool shuffled, LinePart part) {
          return open_file(
              path, field, shuffled, part, model, seed, *tokenizer, files, &summary, &packing_note);
        };
    const bool hold_out = !has_eval() && held_out_by(data_, config_);
    if (need_train)
      opened.train = open_set(config_.train,
                              "conversations.train",
                              data_.shuffle,
                              hold_out ? LinePart::kTrained : LinePart::kAll);
    if (hold_out)
      opened.eval = open_set(config_.train, "conversations.train", false, LinePart::kHeldOut);
    if (has_eval())
      opened.eval = open_set(config_.eval, "conversations.eval", false, LinePart::kAll);
    summary.features = model.context;
    summary.classes = model.outputs > 0 ? model.outputs : tokenizer->id_limit();
    summary.kind = "conversations";
    summary.details =
        fmt::format(" of {} tokens, vocabulary {}{}", model.context, summary.classes, packing_note);
    describe(&opened);
    return opened;
  }

  PlaceholderData make_placeholder(const MissingFile& missing) const override {
    PlaceholderData placeholder = missing.with_outputs_of_model("tokens");
    placeholder.packed = true;
    return placeholder;
  }

 private:
  std::unique_ptr<Dataset> open_file(const std::string& path,
                                     const char* field,
                                     bool shuffled,
                                     LinePart part,
                                     const config::ModelTraits& model,
                                     uint64_t seed,
                                     const tokenizer::Tokenizer& tokenizer,
                                     const chat::ChatFiles& files,
                                     DataSummary* summary,
                                     std::string* packing_note) const {
    const SourceFile file(data_.dir, path, field, SourceFile::Gzip::kDecompress);
    const std::string_view text = text_in(file.bytes(), file.name());
    std::vector<Line> lines = lines_of(text, file.name());
    if (part != LinePart::kAll) keep(part, file.name(), &lines, summary);
    const ConversationEncoder encoder(tokenizer, files, config_.whole_loss);
    std::vector<ReadLine> read(lines.size());
    EncoderThreads threads(data_, tokenizer);
    threads.for_each(static_cast<int64_t>(lines.size()),
                     [&](tokenizer::TokenEncoder& ids, int64_t i) {
                       read[static_cast<size_t>(i)] =
                           read_line(lines[static_cast<size_t>(i)], encoder, files, ids);
                     });
    require_one_form(lines, read);
    log_info("{}: conversations: {}", file.name(), describe_forms(read));
    // One token more than the context, because the last one is only a target.
    auto store = std::make_shared<ConversationStore>(model.context + 1);
    BadRecordLog bad(data_, file.name());
    ConversationTokens last;  // the last good one
    warn_of_unread(lines, read, file.name(), summary);
    for (size_t i = 0; i < lines.size(); ++i) {
      if (!read[i].failure.empty())
        throw DataError("{}:{}: {}", file.name(), lines[i].number, read[i].failure);
      if (read[i].problem.empty() && !store->add(read[i].tokens))
        read[i].problem =
            fmt::format("has no answer within the first {} tokens", model.context + 1);
      if (!read[i].problem.empty()) {
        bad.add(lines[i].number, read[i].problem);
      } else {
        last = std::move(read[i].tokens);
        for (int64_t times = bad.take_pending(); times > 0; --times) store->add(last);
      }
      read[i] = {};
    }
    bad.require_fraction(static_cast<int64_t>(lines.size()));
    summary->bad_records += bad.count();
    if (store->conversations() == 0) throw DataError("{}: has no conversations", file.name());
    for (int64_t times = bad.take_pending(); times > 0; --times) store->add(last);
    if (model.outputs > 0 && store->largest_id() >= model.outputs)
      throw DataError("{}: has a token {}; allowed: below {}, because {}",
                      file.name(),
                      store->largest_id(),
                      model.outputs,
                      model.describe_outputs());
    if (store->cut() > 0)
      summary->warnings.push_back(fmt::format(
          "{}: {} of {} conversations are longer than the context of {} tokens (the longest has "
          "{}) and are truncated",
          file.name(),
          store->cut(),
          store->conversations(),
          model.context,
          store->longest()));
    const bool first = packing_note->empty();
    auto dataset =
        make_conversation_dataset(store, model, seed, shuffled, config_.padded, file.name());
    if (first)
      *packing_note = fmt::format(
          "; {} conversations {}, {:.1f}% of the positions in use, {:.1f}% of them counted",
          store->conversations(),
          config_.padded ? "padded" : "packed",
          100.0 * static_cast<double>(store->tokens() - store->conversations()) /
              static_cast<double>(dataset->samples() * model.context),
          100.0 * static_cast<double>(store->counted_tokens()) /
              static_cast<double>(store->tokens() - store->conversations()));
    return dataset;
  }

  // Leaves only the lines of the part.
  void keep(LinePart part,
            const std::string& name,
            std::vector<Line>* lines,
            DataSummary* summary) const {
    const HeldOut held_out = held_out_by(data_, config_);
    std::vector<Line> trained, held;
    for (size_t i = 0; i < lines->size(); ++i)
      (held_out.takes(static_cast<int64_t>(i)) ? held : trained).push_back((*lines)[i]);
    const auto taken = static_cast<int64_t>(held.size());
    const auto all = static_cast<int64_t>(lines->size());
    held_out.require_parts(taken, all, "conversations", name);
    summary->held_out = held_out.describe(taken, all, "conversations");
    *lines = std::move(part == LinePart::kHeldOut ? held : trained);
  }

  static void warn_of_unread(const std::vector<Line>& lines,
                             const std::vector<ReadLine>& read,
                             const std::string& name,
                             DataSummary* summary) {
    const auto has = [](const ReadLine& line) { return !line.unread.empty(); };
    const auto first = std::ranges::find_if(read, has);
    if (first == read.end()) return;
    summary->warnings.push_back(fmt::format(
        "{}:{}: has '{}', which is not read ({} such lines); to leave an answer out of the loss, "
        "give its message \"weight\": 0",
        name,
        lines[static_cast<size_t>(first - read.begin())].number,
        first->unread,
        std::ranges::count_if(read, has)));
  }

  ReadLine read_line(const Line& line,
                     const ConversationEncoder& encoder,
                     const chat::ChatFiles& files,
                     tokenizer::TokenEncoder& ids) const {
    ReadLine read;
    Conversation conversation;
    read.problem = read_conversation(line.text, config_, &conversation);
    read.unread = std::move(conversation.unread);
    if (!read.problem.empty()) return read;
    read.form = conversation.form;
    if (!files.chat_template && !conversation.uses_texts(false)) {
      read.failure =
          "has messages, but the tokenizer has no chat template; set "
          "data.conversations.chat_template";
      return read;
    }
    try {
      read.tokens = encoder.encode(conversation, ids);
    } catch (const chat::MessagesRejected& error) {
      read.problem = error.what();
    } catch (const DataError& error) {
      read.failure = error.what();
    }
    return read;
  }
};

}  // namespace

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data,
                                              const ConversationsConfig& config) {
  return std::make_unique<Conversations>(data, config);
}

}  // namespace lockstep::data
