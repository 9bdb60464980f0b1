#include "runtime/data/assumed.h"

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/data/file_names.h"
#include "runtime/data/format.h"
#include "runtime/data/images/flattened.h"
#include "runtime/data/images/image_dataset.h"
#include "runtime/data/text/text_samples.h"

namespace lockstep {
namespace {

// Whether there is a file of this name, or pattern, wherever it leads to.
bool is_here(const DataConfig& config, const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(fs::path(config.dir) / name, error)) return true;
  if (name.find_first_of("*?{") == std::string::npos) return false;
  try {
    for (const std::string& file :
         expand_names({name}, config.dir, "data." + name_of(config.source)))
      if (!fs::exists(fs::path(config.dir) / file, error)) return false;
  } catch (const DataError&) {
    return false;  // nothing matches
  }
  return true;
}

// The first file that is not here; empty: all are.
std::string missing_file(const DataConfig& config, const DataFormat& format) {
  for (const std::string& file : format.files())
    if (!file.empty() && !is_here(config, file)) return file;
  return "";
}

// Samples with a shape, and nothing in them.
class AssumedDataset final : public Dataset {
 public:
  AssumedDataset(SampleSpec input, SampleSpec target)
      : input_(std::move(input)), target_(std::move(target)) {}
  int64_t samples() const override { return kAssumedSamples; }
  const SampleSpec& input() const override { return input_; }
  const SampleSpec& target() const override { return target_; }
  void read(const SampleKey&, std::byte*, std::byte*) const override { LOCKSTEP_CHECK(false); }
  int64_t resident_bytes() const override { return 0; }

 private:
  SampleSpec input_, target_;
};

class AssumedStore final : public ImageStore {
 public:
  explicit AssumedStore(AssumedImages images) : images_(images) {}
  int64_t count() const override { return images_.count; }
  int32_t label(int64_t) const override { return 0; }
  std::string name(int64_t) const override { return "assumed"; }
  StoredImage load(int64_t, std::vector<std::byte>&) const override { LOCKSTEP_CHECK(false); }
  bool encoded() const override { return !images_.size; }
  std::optional<ImageSize> common_size() const override { return images_.size; }
  int channels() const override { return images_.channels; }
  int64_t resident_bytes() const override { return images_.resident_bytes; }

 private:
  AssumedImages images_;
};

OpenedData make_sequences(const AssumedData& assumed, const ModelTraits& model, bool has_eval) {
  OpenedData opened;
  const bool values = model.text_task == TextTask::kSequenceValues;
  (values ? opened.summary.target_columns : opened.summary.classes) = assumed.outputs;
  opened.summary.features = model.context;
  opened.summary.vocabulary = assumed.vocabulary;
  const SampleSpec input = text_input(model, assumed.packed);
  const SampleSpec target = text_target(model, assumed.outputs);
  opened.train = std::make_unique<AssumedDataset>(input, target);
  if (has_eval) opened.eval = std::make_unique<AssumedDataset>(input, target);
  return opened;
}

OpenedData make_images(const AssumedData& assumed,
                       const DataConfig& config,
                       const ModelTraits& model,
                       uint64_t seed,
                       bool has_eval) {
  ImageStores stores;
  stores.train = std::make_shared<AssumedStore>(assumed.train);
  if (has_eval) stores.eval = std::make_shared<AssumedStore>(assumed.eval);
  stores.classes = assumed.outputs;
  OpenedData opened = open_stores(config, stores, seed);
  return model.wants_images() ? std::move(opened) : flatten_images(std::move(opened), model);
}

}  // namespace

MissingFile::MissingFile(const DataConfig& data, const ModelTraits& model, std::string name)
    : data_(data), model_(model), name_(std::move(name)) {}

AssumedData MissingFile::with_outputs_of_model(const std::string& what) const {
  const std::string field = model_.field(model_.outputs_field);
  if (model_.outputs == 0)
    refuse(fmt::format("how many {} there are", what), fmt::format("set {}, or ", field));
  AssumedData assumed;
  assumed.what = fmt::format("{} {}, as {} says",
                             model_.outputs,
                             what,
                             model_.file.empty() ? field : in_quotes(model_.file));
  assumed.outputs = model_.outputs;
  assumed.vocabulary = model_.vocabulary;
  return assumed;
}

void MissingFile::refuse(const std::string& unknown, const std::string& remedy) const {
  throw DataError(
      "{}: '{}' is not here, and nothing else says {}; {}give the file, or its folder with --data",
      "data." + name_of(data_.source),
      (std::filesystem::path(data_.dir) / name_).string(),
      unknown,
      remedy);
}

OpenedData open_or_assume_data(const DataConfig& config, const ModelTraits& model, uint64_t seed) {
  const std::unique_ptr<const DataFormat> format = format_of(config);
  const std::string name = missing_file(config, *format);
  if (name.empty()) return open_data(config, model, seed, /*need_train=*/true);
  const AssumedData assumed = format->assume(MissingFile(config, model, name));
  OpenedData opened = model.input == ModelInput::kTokens
                          ? make_sequences(assumed, model, format->has_eval())
                          : make_images(assumed, config, model, seed, format->has_eval());
  opened.summary.assumed =
      fmt::format("{} is not here: assumed {}, {} samples{}",
                  name,
                  assumed.what,
                  opened.train->samples(),
                  assumed.in_memory_counted ? "" : ", and no memory for its files");
  opened.summary.description = opened.summary.assumed;
  return opened;
}

}  // namespace lockstep
