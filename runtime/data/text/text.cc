// data.text: plain text as bytes. Every byte is a token, so the vocabulary is 256.
#include <memory>

#include "runtime/base/file_kind.h"
#include "runtime/base/names.h"
#include "runtime/data/format.h"
#include "runtime/data/text/sequence.h"

namespace lockstep::data {
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

// Bytes are taken as they are, whatever they are. But a web page is often what a failed download
// left, and every second byte of UTF-16 is nearly always the same.
void warn_of_kind(const SourceFile& file, DataSummary* summary) {
  const std::string& name = file.name();
  const FileKind kind = file_kind(file.bytes());
  const bool page = kind.id == "html" && !has_suffix(name, ".html") && !has_suffix(name, ".htm");
  if (page)
    summary->warnings.push_back(
        fmt::format("{}: is {}, and is read as it is; {}", name, kind.name, kind.remedy));
  const std::span<const std::byte> bytes = file.bytes();
  const std::string_view encoding =
      utf16_name({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!encoding.empty())
    summary->warnings.push_back(fmt::format(
        "{}: is UTF-16 text, and is read as it is; to convert it: iconv -f {} -t UTF-8 FILE",
        name,
        encoding));
}

class Text final : public TextFormat<TextConfig> {
 public:
  using TextFormat::TextFormat;

  void check_for_model(const config::ModelTraits& model) const override {
    if (model.text_task != config::TextTask::kNextToken)
      throw ConfigError(
          "data.text: needs a model that predicts the next token, because bytes have no mask "
          "token; `lockstep data tokenize` converts text for data.tokens");
    if (model.outputs != 0 && model.outputs < kByteVocabulary)
      model.refuse(model.outputs_field,
                   model.outputs,
                   "output",
                   "0 (from the data), or ",
                   "at least 256 with data.text, whose tokens are bytes");
  }

  bool has_byte_tokens() const override { return true; }
  bool holds_out() const override { return true; }

  // Samples are those of sequence.h, with another shift in each epoch if data are shuffled. What is
  // held out is the end of the training file.
  OpenedSource open(const config::ModelTraits& model,
                    uint64_t seed,
                    bool need_train) const override {
    const HeldOut held_out = held_out_by(data_, config_);
    const bool hold_out = config_.eval.empty() && held_out;
    OpenedData opened;
    if (need_train || hold_out) {
      const auto file = open_file(data_, config_.train, "text.train");
      warn_of_kind(*file, &opened.summary);
      SequenceParts parts{.train = {file->bytes(), 1}, .eval = {}, .text = {}};
      if (hold_out) parts = hold_out_end(held_out, parts.train, model, file->name(), "bytes");
      if (need_train)
        opened.train = make_sequence_dataset(file, parts.train, model, seed, data_.shuffle);
      if (hold_out) opened.eval = make_sequence_dataset(file, parts.eval, model, seed, false);
      opened.summary.held_out = parts.text;
    }
    if (!config_.eval.empty()) {
      const auto file = open_file(data_, config_.eval, "text.eval");
      warn_of_kind(*file, &opened.summary);
      opened.eval = make_sequence_dataset(file, {file->bytes(), 1}, model, seed, false);
    }
    DataSummary& summary = opened.summary;
    summary.features = model.context;
    summary.classes = model.outputs > 0 ? model.outputs : kByteVocabulary;
    summary.kind = "text";
    summary.details = fmt::format(" of {} bytes", model.context);
    describe(&opened);
    return opened;
  }

  PlaceholderData make_placeholder(const MissingFile& missing) const override {
    if (missing.model().outputs > 0) return missing.with_outputs_of_model("tokens");
    return {fmt::format("{} tokens, one for each byte value", kByteVocabulary), kByteVocabulary};
  }
};

}  // namespace

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data, const TextConfig& text) {
  return std::make_unique<Text>(data, text);
}

}  // namespace lockstep::data
