#include "runtime/data/placeholder.h"

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/names.h"
#include "runtime/base/text.h"
#include "runtime/data/file_names.h"
#include "runtime/data/format.h"
#include "runtime/data/held_out.h"
#include "runtime/data/images/image_dataset.h"
#include "runtime/data/text/text_samples.h"
#include "runtime/data/transcripts/transcript_file.h"

namespace lockstep::data {
namespace {

// Whether the file exists, or all files of the pattern; symbolic links are followed.
bool exists(const DataConfig& config, const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(fs::path(config.dir) / name, error)) return true;
  if (name.find_first_of("*?{") == std::string::npos) return false;
  try {
    for (const std::string& file :
         expand_names({name}, config.dir, "data." + config::name_of(config.source)))
      if (!fs::exists(fs::path(config.dir) / file, error)) return false;
  } catch (const DataError&) {
    return false;  // no file matches the pattern
  }
  return true;
}

// The first file that does not exist, or "".
std::string missing_file(const DataConfig& config, const DataFormat& format) {
  for (const std::string& file : format.files())
    if (!file.empty() && !exists(config, file)) return file;
  return "";
}

// Samples that have shapes but no contents.
class PlaceholderDataset final : public Dataset {
 public:
  PlaceholderDataset(SampleSpec input, SampleSpec target)
      : Dataset(std::move(input), std::move(target)) {}
  int64_t samples() const override { return kPlaceholderSamples; }
  void read(const SampleKey&, std::byte*, std::byte*) const override { LOCKSTEP_CHECK(false); }
  int64_t resident_bytes() const override { return 0; }
};

class PlaceholderStore final : public ImageStore {
 public:
  PlaceholderStore(PlaceholderImages images, bool has_masks)
      : images_(images), has_masks_(has_masks) {}
  int64_t count() const override { return images_.count; }
  int32_t label(int64_t) const override { return 0; }
  bool has_masks() const override { return has_masks_; }
  std::string name(int64_t) const override { return "assumed"; }
  StoredImage load(int64_t, std::vector<std::byte>&) const override { LOCKSTEP_CHECK(false); }
  bool encoded() const override { return !images_.size; }
  std::optional<ImageSize> common_size() const override { return images_.size; }
  int channels() const override { return images_.channels; }
  int64_t resident_bytes() const override { return images_.resident_bytes; }

 private:
  PlaceholderImages images_;
  bool has_masks_;
};

OpenedData make_sequences(const PlaceholderData& placeholder,
                          const config::ModelTraits& model,
                          bool has_eval) {
  OpenedData opened;
  const bool values = model.text_task == config::TextTask::kSequenceValues;
  (values ? opened.summary.target_columns : opened.summary.classes) = placeholder.outputs;
  opened.summary.features = model.context;
  opened.summary.vocabulary = placeholder.vocabulary;
  opened.summary.texts = placeholder.texts;
  const SampleSpec input = text_input(model, placeholder.packed, placeholder.texts);
  const SampleSpec target = text_target(model, placeholder.outputs);
  opened.train = std::make_unique<PlaceholderDataset>(input, target);
  if (has_eval) opened.eval = std::make_unique<PlaceholderDataset>(input, target);
  return opened;
}

OpenedData make_transcripts(const PlaceholderData& placeholder,
                            const config::TranscriptTraits& model,
                            bool has_eval) {
  OpenedData opened;
  const SampleSpec input = transcript_input(model), target = transcript_target(placeholder.symbols);
  opened.summary.classes = placeholder.outputs;
  opened.summary.features = input.shape[0];
  opened.summary.target_columns = target.shape[0];
  opened.train = std::make_unique<PlaceholderDataset>(input, target);
  if (has_eval) opened.eval = std::make_unique<PlaceholderDataset>(input, target);
  return opened;
}

OpenedData make_images(const PlaceholderData& placeholder,
                       const DataConfig& config,
                       const config::ModelTraits& model,
                       uint64_t seed,
                       bool has_eval) {
  ImageStores stores;
  const bool masks = model.target_kind() == config::TargetKind::kPixelClasses;
  stores.train = std::make_shared<PlaceholderStore>(placeholder.train, masks);
  if (has_eval) stores.eval = std::make_shared<PlaceholderStore>(placeholder.eval, masks);
  stores.classes = placeholder.outputs;
  OpenedData opened = open_stores(config, stores, seed);
  return model.wants_images() ? std::move(opened) : flatten_images(std::move(opened), model);
}

}  // namespace

MissingFile::MissingFile(const DataConfig& data, const config::ModelTraits& model, std::string name)
    : data_(data), model_(model), name_(std::move(name)) {}

PlaceholderData MissingFile::with_outputs_of_model(const std::string& what) const {
  const std::string field = model_.field(model_.outputs_field);
  if (model_.outputs == 0)
    refuse(fmt::format("the number of {}", what), fmt::format("set {}, or ", field));
  PlaceholderData placeholder;
  placeholder.what = fmt::format("{} {}, as {} says",
                                 model_.outputs,
                                 what,
                                 model_.file.empty() ? field : in_quotes(model_.file));
  placeholder.outputs = model_.outputs;
  placeholder.vocabulary = model_.vocabulary;
  return placeholder;
}

void MissingFile::refuse(const std::string& unknown, const std::string& remedy) const {
  throw DataError(
      "{}: '{}' does not exist, and the config does not give {}; {}give the file, or its folder "
      "with --data{}",
      "data." + config::name_of(data_.source),
      (std::filesystem::path(data_.dir) / name_).string(),
      unknown,
      remedy,
      look_alike_hint((std::filesystem::path(data_.dir) / name_).string()));
}

OpenedData open_data_or_placeholder(const DataConfig& config,
                                    const config::ModelTraits& model,
                                    uint64_t seed) {
  const std::unique_ptr<const DataFormat> format = format_of(config);
  const std::string name = missing_file(config, *format);
  if (name.empty()) return open_data(config, model, seed, /*need_train=*/true);
  const PlaceholderData placeholder = format->make_placeholder(MissingFile(config, model, name));
  const bool has_eval = format->has_eval() || held_out_by(config);
  OpenedData opened =
      model.input == config::ModelInput::kTokens ? make_sequences(placeholder, model, has_eval)
      : model.transcript ? make_transcripts(placeholder, *model.transcript, has_eval)
                         : make_images(placeholder, config, model, seed, has_eval);
  opened.summary.placeholder =
      fmt::format("{} does not exist: assumed {}, {} samples{}{}",
                  name,
                  placeholder.what,
                  opened.train->samples(),
                  placeholder.in_memory_counted ? "" : ", and no memory for its files",
                  look_alike_hint((std::filesystem::path(config.dir) / name).string()));
  opened.summary.description = opened.summary.placeholder;
  return opened;
}

}  // namespace lockstep::data
