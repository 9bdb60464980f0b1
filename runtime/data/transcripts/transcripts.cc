// data.transcripts: frames of sounds, or columns of images, with the text that they stand for.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/config/limits.h"
#include "runtime/data/format.h"
#include "runtime/data/text/text_table.h"
#include "runtime/data/transcripts/symbols.h"
#include "runtime/data/transcripts/transcript_file.h"

namespace lockstep::data {
namespace {

constexpr char kSymbolsField[] = "data.transcripts.symbols";

// What people never mean: symbols that no training text has, and texts that are all the same.
std::vector<std::string> warnings_of(const Transcripts& train, const Symbols& symbols) {
  std::vector<std::string> warnings;
  const std::vector<std::string> names = symbols.names();
  std::vector<bool> used(names.size());
  for (const int32_t symbol : train.symbols) used[static_cast<size_t>(symbol)] = true;
  std::vector<std::string> unused;
  for (size_t i = 0; i < names.size(); ++i)
    if (!used[i] && !names[i].empty()) unused.push_back(in_quotes(names[i]));
  constexpr size_t kMaxNamed = 10;
  if (!unused.empty())
    warnings.push_back(
        fmt::format("{}: no training text has {} of the {} symbols: {}",
                    train.name,
                    unused.size(),
                    symbols.count(),
                    named_first(unused.size(), kMaxNamed, [&](size_t i) { return unused[i]; })));
  const auto text = [&](size_t i) {
    return std::span(train.symbols).subspan(train.begins[i], train.begins[i + 1] - train.begins[i]);
  };
  for (size_t i = 1; i < train.paths.size(); ++i)
    if (!std::ranges::equal(text(i), text(0))) return warnings;
  if (train.paths.size() > 1)
    warnings.push_back(
        fmt::format("{}: all {} training texts are the same: there is nothing to "
                    "learn",
                    train.name,
                    train.paths.size()));
  return warnings;
}

class TranscriptFormat final : public FileFormat<TranscriptsConfig> {
 public:
  using FileFormat::FileFormat;

  void check() const override {
    text_table_kind(config_.train, "data.transcripts.train");
    if (has_eval()) text_table_kind(config_.eval, "data.transcripts.eval");
    if (config_.frames == config_.text)
      config::refuse_value("data.transcripts.text",
                           in_quotes(config_.text),
                           "another field than data.transcripts.frames");
    Symbols(config_.symbols, kSymbolsField, 0);
  }
  bool supports(config::ModelInput input) const override {
    return input == config::ModelInput::kFeatures;
  }
  bool provides(config::TargetKind kind, config::ModelInput /*input*/) const override {
    return kind == config::TargetKind::kTranscript;
  }

  OpenedSource open(const config::ModelTraits& model,
                    uint64_t /*seed*/,
                    bool need_train) const override {
    return open_transcripts(model, need_train, /*needs_text=*/true);
  }
  OpenedSource open_inputs(const config::ModelTraits& model, uint64_t /*seed*/) const override {
    return open_transcripts(model, /*need_train=*/false, /*needs_text=*/false);
  }

  // Without the texts, as many symbols as the output has frames.
  PlaceholderData make_placeholder(const MissingFile& missing) const override {
    PlaceholderData placeholder = missing.with_outputs_of_model("outputs");
    const config::TranscriptTraits& model = *missing.model().transcript;
    placeholder.symbols = config_.max_symbols > 0 ? config_.max_symbols : model.output_frames;
    placeholder.what += fmt::format(", texts of at most {} symbols", placeholder.symbols);
    return placeholder;
  }

 private:
  // Even without training, the training file is read if only it has the symbols.
  OpenedData open_transcripts(const config::ModelTraits& model,
                              bool need_train,
                              bool needs_text) const {
    const config::TranscriptTraits& traits = *model.transcript;
    Symbols symbols(config_.symbols, kSymbolsField, static_cast<int32_t>(traits.blank));
    if (!symbols.listed()) collect_symbols(data_, config_, config_.train, "train", &symbols);
    symbols.finish();
    if (symbols.count() + 1 != model.outputs)
      throw DataError("{} {}, {}; {}; allowed: one for each symbol, and one for the blank",
                      symbols.listed() ? kSymbolsField + std::string(" lists")
                                       : "data.transcripts: the training texts have",
                      counted(symbols.count(), "symbol"),
                      symbols.list(),
                      model.describe_outputs());
    OpenedData opened;
    DataSummary& summary = opened.summary;
    std::optional<Transcripts> train, eval;
    const auto read = [&](const std::string& path, const char* field, bool text) {
      Transcripts found = read_transcripts(data_, config_, traits, path, field, symbols, text);
      summary.bad_records += found.bad_records;
      return found;
    };
    if (need_train) train = read(config_.train, "train", true);
    if (has_eval()) eval = read(config_.eval, "eval", needs_text);
    int64_t longest = config_.max_symbols;
    if (longest == 0)
      longest = std::max<int64_t>({1, train ? train->longest : 0, eval ? eval->longest : 0});
    summary.features = traits.frames * traits.features;
    summary.classes = model.outputs;
    summary.class_names = symbols.names();
    summary.target_columns = transcript_target(longest).shape[0];
    summary.labels_from = config_.train;
    summary.kind = "transcripts";
    summary.details = fmt::format(" of at most {} frames of {} features and {}, {} different",
                                  traits.frames,
                                  traits.features,
                                  counted(longest, "symbol"),
                                  symbols.count());
    if (train) {
      summary.warnings = warnings_of(*train, symbols);
      opened.train = make_transcript_dataset(*std::move(train), traits, longest);
    }
    if (eval) opened.eval = make_transcript_dataset(*std::move(eval), traits, longest);
    describe(&opened);
    return opened;
  }
};

}  // namespace

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data,
                                              const TranscriptsConfig& config) {
  return std::make_unique<TranscriptFormat>(data, config);
}

}  // namespace lockstep::data
