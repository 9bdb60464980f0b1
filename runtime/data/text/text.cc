#include "runtime/data/text/text.h"

#include <memory>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/text/sequence.h"

namespace lockstep {
namespace {

constexpr int64_t kByteVocabulary = 256;

std::shared_ptr<const SourceFile> open_file(const DataConfig& config,
                                            const std::string& path,
                                            const char* field,
                                            const ModelTraits& model,
                                            int64_t vocabulary) {
  auto file =
      std::make_shared<const SourceFile>(config.dir, path, field, SourceFile::Gzip::kDecompress);
  check_vocabulary({file->bytes(), 1}, vocabulary, model, file->name());
  return file;
}

}  // namespace

OpenedData open_text(const DataConfig& config,
                     const TextConfig& text,
                     const ModelTraits& model,
                     uint64_t seed,
                     bool need_train) {
  const int64_t vocabulary = model.outputs > 0 ? model.outputs : kByteVocabulary;
  const bool hold_out = text.eval.empty() && text.eval_fraction > 0;
  OpenedData opened;
  if (need_train || hold_out) {
    const auto file = open_file(config, text.train, "text.train", model, vocabulary);
    const auto bytes = file->bytes();
    const size_t held_out =
        hold_out ? static_cast<size_t>(static_cast<double>(bytes.size()) * text.eval_fraction) : 0;
    const size_t border = bytes.size() - held_out;
    if (need_train)
      opened.train =
          make_sequence_dataset(file, {bytes.first(border), 1}, model, seed, config.shuffle);
    if (hold_out)
      opened.eval = make_sequence_dataset(file, {bytes.subspan(border), 1}, model, seed, false);
  }
  if (!text.eval.empty()) {
    const auto file = open_file(config, text.eval, "text.eval", model, vocabulary);
    opened.eval = make_sequence_dataset(file, {file->bytes(), 1}, model, seed, false);
  }
  DataSummary& summary = opened.summary;
  summary.features = model.context;
  summary.classes = vocabulary;
  if (opened.train != nullptr) summary.train_samples = opened.train->samples();
  if (opened.eval != nullptr) summary.eval_samples = opened.eval->samples();
  summary.description = fmt::format("text: {} training and {} evaluation samples of {} bytes",
                                    summary.train_samples,
                                    summary.eval_samples,
                                    model.context);
  return opened;
}

}  // namespace lockstep
