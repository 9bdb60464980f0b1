// data.tokens: token ids in memory-mapped files.
#include <functional>
#include <memory>
#include <tuple>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/data/format.h"
#include "runtime/data/text/data_tokenizer.h"
#include "runtime/data/text/masking.h"
#include "runtime/data/text/packing.h"
#include "runtime/data/text/token_file.h"

namespace lockstep::data {
namespace {

constexpr int64_t kMaxToken = (int64_t{1} << 31) - 2;

struct TokenFile {
  TokenFile(const DataConfig& config,
            const TokensConfig& tokens,
            const std::string& path,
            const char* field)
      : file(std::make_shared<const SourceFile>(config.dir, path, field, SourceFile::Gzip::kNever)),
        sequence(parse_tokens(file->bytes(), tokens.format, file->name())) {}

  std::shared_ptr<const SourceFile> file;
  TokenSequence sequence;
};

// What a set has of a token file: some of its tokens or, if documents are packed, of these.
struct TokenPart {
  TokenSequence sequence;
  std::string documents;                // path of the file of their boundaries
  const char* field;                    // that names it
  std::function<bool(int64_t)> wanted;  // by index; null: all documents
};
struct TokenParts {
  TokenPart train, eval;
};

class Tokens final : public TextFormat<TokensConfig> {
 public:
  using TextFormat::TextFormat;

  void check() const override {
    for (const auto& [set, name, tokens] :
         {std::tuple("train", config_.train_documents, config_.train),
          std::tuple("eval", config_.eval_documents, config_.eval)}) {
      const std::string field = std::string("data.tokens.") + set + "_documents";
      if (!packs() && !name.empty())
        config::refuse_value(field, name, "unset unless data.tokens.packing is BEST_FIT or PADDED");
      if (packs() && name.empty() != tokens.empty())
        config::refuse_value(
            field,
            "'" + name + "'",
            tokens.empty() ? std::string("unset without data.tokens.") + set
                           : "the path of a file of document boundaries, for data.tokens.packing");
    }
  }
  std::vector<std::string> files() const override {
    std::vector<std::string> names = FileFormat::files();
    names.insert(names.end(), {config_.train_documents, config_.eval_documents});
    return names;
  }

  void check_for_model(const config::ModelTraits& model) const override {
    if (shares_samples() && !model.tells_documents_apart)
      config::refuse_value(
          "data.tokens.packing",
          "BEST_FIT",
          "NONE or PADDED, because in model.{} packed documents would see each other",
          model.section);
    if (hides(model)) return;
    if (model.text_task != config::TextTask::kNextToken)
      throw ConfigError(
          "data.tokens: needs a model that predicts tokens: the next one, or masked ones");
    if (!config_.tokenizer.empty())
      config::refuse_value("data.tokens.tokenizer",
                           in_quotes(config_.tokenizer),
                           "unset unless the model predicts masked tokens");
    if (config_.mask_share != TokensConfig{}.mask_share)
      config::refuse_value("data.tokens.mask_share",
                           config_.mask_share,
                           "unset unless the model predicts masked tokens");
  }

  bool shares_samples() const override {
    return config_.packing == TokensConfig::Packing::kBestFit;
  }
  bool holds_out() const override { return true; }

  // Samples are those of sequence.h, with another shift in each epoch if data are shuffled, or
  // those of packing.h. What is held out is the end of the sequence, or documents. For a model that
  // predicts masked tokens, masking.h masks some of them. The vocabulary is the model's, otherwise
  // the tokenizer's, otherwise the largest training token + 1. Every token is checked against it.
  OpenedSource open(const config::ModelTraits& model,
                    uint64_t seed,
                    bool need_train) const override {
    OpenedData opened;
    std::string packing_note;  // for the description: how tokens are hidden and packed
    int64_t vocabulary = model.outputs;
    std::shared_ptr<const Masking> masking;
    if (hides(model)) {
      masking = open_masking(model, seed);
      const auto known = static_cast<int64_t>(masking->special.size());
      if (vocabulary == 0) vocabulary = known;
      packing_note = fmt::format("; {:.0f}% of the tokens hidden", 100 * config_.mask_share);
    }
    const HeldOut held_out = config_.eval.empty() ? held_out_by(data_, config_) : HeldOut{};
    if (need_train || held_out || vocabulary == 0) {
      const TokenFile train(data_, config_, config_.train, "tokens.train");
      if (vocabulary == 0)
        vocabulary = vocabulary_of(train);
      else
        check_tokens(train, vocabulary, masking.get(), model);
      warn_of_width(train, &opened.summary);
      const TokenParts parts = parts_of(train, held_out, model, &opened.summary.held_out);
      if (need_train)
        opened.train = make_dataset(train, parts.train, model, seed, data_.shuffle, &packing_note);
      if (held_out)
        opened.eval = make_dataset(
            train, parts.eval, model, seed, false, need_train ? nullptr : &packing_note);
    }
    if (!config_.eval.empty()) {
      const TokenFile eval(data_, config_, config_.eval, "tokens.eval");
      check_tokens(eval, vocabulary, masking.get(), model);
      warn_of_width(eval, &opened.summary);
      const TokenPart all = {
          eval.sequence, config_.eval_documents, "tokens.eval_documents", nullptr};
      opened.eval =
          make_dataset(eval, all, model, seed, false, need_train ? nullptr : &packing_note);
    }
    DataSummary& summary = opened.summary;
    summary.features = model.context;
    summary.classes = vocabulary;
    if (masking != nullptr)
      for (std::unique_ptr<Dataset>* dataset : {&opened.train, &opened.eval})
        if (*dataset != nullptr) *dataset = mask_tokens(std::move(*dataset), masking, model);
    summary.kind = "tokens";
    summary.details =
        fmt::format(" of {} tokens, vocabulary {}{}", model.context, vocabulary, packing_note);
    describe(&opened);
    return opened;
  }

  PlaceholderData make_placeholder(const MissingFile& missing) const override {
    PlaceholderData placeholder;
    if (hides(missing.model()) && missing.model().outputs == 0) {
      placeholder.outputs = placeholder_vocabulary(data_, config_.tokenizer, missing);
      placeholder.what = fmt::format("{} tokens, as the tokenizer says", placeholder.outputs);
    } else {
      placeholder = missing.with_outputs_of_model("tokens");
    }
    placeholder.packed = packs();
    return placeholder;
  }

 private:
  bool packs() const { return config_.packing != TokensConfig::Packing::kNone; }
  static bool hides(const config::ModelTraits& model) {
    return model.text_task == config::TextTask::kMaskedTokens;
  }

  std::shared_ptr<const Masking> open_masking(const config::ModelTraits& model,
                                              uint64_t seed) const {
    constexpr char kField[] = "data.tokens.tokenizer";
    const auto tokenizer = open_data_tokenizer(data_, config_.tokenizer, kField);
    if (model.outputs > 0 && tokenizer->id_limit() > model.outputs)
      model.refuse(
          model.outputs_field,
          model.outputs,
          "output",
          "0, or ",
          fmt::format("at least {}, the vocabulary of the tokenizer", tokenizer->id_limit()));
    return std::make_shared<const Masking>(
        masking_of(*tokenizer, kField, config_.mask_share, seed));
  }

  // Throws DataError if a token is not in the vocabulary, or unknown to the tokenizer.
  static void check_tokens(const TokenFile& tokens,
                           int64_t vocabulary,
                           const Masking* masking,
                           const config::ModelTraits& model) {
    require_vocabulary(tokens.sequence, vocabulary, model, tokens.file->name());
    const auto known =
        masking == nullptr ? vocabulary : static_cast<int64_t>(masking->special.size());
    if (known >= vocabulary) return;
    const int64_t largest = largest_token(tokens.sequence);
    if (largest >= known)
      throw DataError("{}: has a token {}; the tokenizer of data.tokens.tokenizer has 0 to {}",
                      tokens.file->name(),
                      largest,
                      known - 1);
  }

  // The parts of the training file; without `held_out` the first one is all of it. *text: for the
  // log.
  TokenParts parts_of(const TokenFile& tokens,
                      const HeldOut& held_out,
                      const config::ModelTraits& model,
                      std::string* text) const {
    const TokenPart all = {
        tokens.sequence, config_.train_documents, "tokens.train_documents", nullptr};
    TokenParts parts{all, all};
    if (!held_out) return parts;
    if (!packs()) {
      const SequenceParts ends =
          hold_out_end(held_out, tokens.sequence, model, tokens.file->name(), "tokens");
      parts.train.sequence = ends.train;
      parts.eval.sequence = ends.eval;
      *text = ends.text;
      return parts;
    }
    const SourceFile file = open_documents(all);
    const auto documents = static_cast<int64_t>(documents_in(file, all).size()) - 1;
    int64_t held = 0;
    for (int64_t i = 0; i < documents; ++i) held += held_out.takes(i) ? 1 : 0;
    held_out.require_parts(held, documents, "documents", file.name());
    *text = held_out.describe(held, documents, "documents");
    parts.train.wanted = [held_out](int64_t document) { return !held_out.takes(document); };
    parts.eval.wanted = [held_out](int64_t document) { return held_out.takes(document); };
    return parts;
  }

  SourceFile open_documents(const TokenPart& part) const {
    return SourceFile(data_.dir, part.documents, part.field, SourceFile::Gzip::kNever);
  }
  static DocumentBoundaries documents_in(const SourceFile& file, const TokenPart& part) {
    return parse_documents(file.bytes(), part.sequence.count(), file.name());
  }

  // Makes the samples of a part of a file. If they are packed, appends a description to
  // *packing_note unless null.
  std::unique_ptr<Dataset> make_dataset(const TokenFile& tokens,
                                        const TokenPart& part,
                                        const config::ModelTraits& model,
                                        uint64_t seed,
                                        bool shuffled,
                                        std::string* packing_note) const {
    if (!packs()) return make_sequence_dataset(tokens.file, part.sequence, model, seed, shuffled);
    const SourceFile boundaries = open_documents(part);
    const bool several = shares_samples();
    const auto packing = std::make_shared<const Packing>(
        documents_in(boundaries, part),
        model.context,
        several,
        boundaries.name(),
        /*ahead=*/model.text_task == config::TextTask::kNextToken ? 1 : 0,
        part.wanted);
    if (packing_note != nullptr)
      *packing_note += fmt::format(
          "; {} pieces of documents {}, {:.1f}% of the positions in use",
          packing->pieces(),
          several ? "packed" : "padded",
          100.0 * static_cast<double>(packing->inputs()) /
              (static_cast<double>(packing->samples()) * static_cast<double>(model.context)));
    return make_packed_dataset(tokens.file, tokens.sequence, packing, model, seed, shuffled);
  }

  static void warn_of_width(const TokenFile& tokens, DataSummary* summary) {
    std::string warning = describe_narrow_tokens(tokens.sequence, tokens.file->name());
    if (!warning.empty()) summary->warnings.push_back(std::move(warning));
  }

  static int64_t vocabulary_of(const TokenFile& train) {
    const int64_t largest = largest_token(train.sequence);
    if (largest > kMaxToken)
      throw DataError(
          "{}: has a token {}; allowed: 0..{} (check data.tokens.format, the size of a token)",
          train.file->name(),
          largest,
          kMaxToken);
    return largest + 1;
  }
};

}  // namespace

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data, const TokensConfig& tokens) {
  return std::make_unique<Tokens>(data, tokens);
}

}  // namespace lockstep::data
