#include "runtime/data/assumed.h"

#include <filesystem>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/config/validate_data.h"
#include "runtime/data/file_names.h"
#include "runtime/data/images/cifar.h"
#include "runtime/data/images/flattened.h"
#include "runtime/data/images/image_dataset.h"
#include "runtime/data/images/image_stores.h"

namespace lockstep {
namespace {

constexpr int64_t kSamples = 1'000'000;  // of a training set whose size only its files tell
constexpr int64_t kByteVocabulary = 256;

// The files that a source names for training, then those for evaluation.
std::vector<std::string> files_of(const IdxConfig& c) {
  return {c.train_images, c.train_labels, c.eval_images, c.eval_labels};
}
std::vector<std::string> files_of(const SyntheticConfig&) { return {}; }
std::vector<std::string> files_of(const CifarConfig& c) {
  std::vector<std::string> files = c.train;
  files.insert(files.end(), c.eval.begin(), c.eval.end());
  return files;
}
std::vector<std::string> files_of(const TarShardsConfig& c) {
  std::vector<std::string> files = c.train;
  files.insert(files.end(), c.eval.begin(), c.eval.end());
  return files;
}
template <typename Source>
std::vector<std::string> files_of(const Source& c) {
  return {c.train, c.eval};
}

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
std::string missing_file(const DataConfig& config) {
  const std::vector<std::string> files =
      std::visit([](const auto& source) { return files_of(source); }, config.source);
  for (const std::string& file : files)
    if (!file.empty() && !is_here(config, file)) return file;
  return "";
}

// Samples with a shape, and nothing in them.
class AssumedDataset final : public Dataset {
 public:
  AssumedDataset(SampleSpec input, SampleSpec target)
      : input_(std::move(input)), target_(std::move(target)) {}
  int64_t samples() const override { return kSamples; }
  const SampleSpec& input() const override { return input_; }
  const SampleSpec& target() const override { return target_; }
  void read(const SampleKey&, std::byte*, std::byte*) const override { LOCKSTEP_CHECK(false); }
  int64_t resident_bytes() const override { return 0; }

 private:
  SampleSpec input_, target_;
};

class AssumedStore final : public ImageStore {
 public:
  struct Pictures {
    int64_t count = kSamples;
    std::optional<ImageSize> size;  // where all have one
    int channels = 3;
    int64_t resident_bytes = 0;
  };
  explicit AssumedStore(Pictures pictures) : pictures_(pictures) {}
  int64_t count() const override { return pictures_.count; }
  int32_t label(int64_t) const override { return 0; }
  std::string name(int64_t) const override { return "assumed"; }
  StoredImage load(int64_t, std::vector<std::byte>&) const override { LOCKSTEP_CHECK(false); }
  bool encoded() const override { return !pictures_.size; }
  std::optional<ImageSize> common_size() const override { return pictures_.size; }
  int channels() const override { return pictures_.channels; }
  int64_t resident_bytes() const override { return pictures_.resident_bytes; }

 private:
  Pictures pictures_;
};

// What a config says of data that are not here.
class Assumption {
 public:
  Assumption(const DataConfig& config, const ModelTraits& model, std::string file)
      : config_(config), model_(model), file_(std::move(file)) {}

  OpenedData make(uint64_t seed) {
    OpenedData opened = model_.input == ModelInput::kTokens ? tokens() : images(seed);
    opened.summary.assumed = fmt::format("{} is not here: assumed {}, {} samples{}",
                                         file_,
                                         what_,
                                         opened.train->samples(),
                                         in_memory_ ? "" : ", and no memory for its files");
    opened.summary.description = opened.summary.assumed;
    return opened;
  }

 private:
  OpenedData images(uint64_t seed) {
    const ImageStores stores =
        std::visit([this](const auto& source) { return pictures(source); }, config_.source);
    OpenedData opened = open_stores(config_, stores, seed);
    return model_.wants_images() ? std::move(opened) : flatten_images(std::move(opened), model_);
  }

  [[noreturn]] void refuse(const std::string& unknown, const std::string& remedy) const {
    throw DataError(
        "{}: '{}' is not here, and nothing else says {}; {}give the file, or its folder with "
        "--data",
        "data." + name_of(config_.source),
        (std::filesystem::path(config_.dir) / file_).string(),
        unknown,
        remedy);
  }

  // Classes or vocabulary that the model says.
  int64_t outputs_of_model(const char* what) {
    const std::string field = model_.field(model_.outputs_field);
    if (model_.outputs == 0)
      refuse(fmt::format("how many {} there are", what), fmt::format("set {}, or ", field));
    what_ = fmt::format("{} {}, as {} says", model_.outputs, what, field);
    return model_.outputs;
  }

  OpenedData tokens() {
    const bool bytes = std::holds_alternative<TextConfig>(config_.source);
    OpenedData opened;
    DataSummary& summary = opened.summary;
    if (bytes && model_.outputs == 0) {
      summary.classes = kByteVocabulary;
      what_ = fmt::format("{} tokens, the values of a byte", kByteVocabulary);
    } else {
      summary.classes = outputs_of_model("tokens");
    }
    summary.features = model_.context;
    const SampleSpec sequence{DType::kI32, Shape{model_.context}};
    opened.train = std::make_unique<AssumedDataset>(sequence, sequence);
    if (has_eval_data(config_)) opened.eval = std::make_unique<AssumedDataset>(sequence, sequence);
    return opened;
  }

  ImageStores stores_of(AssumedStore::Pictures train, AssumedStore::Pictures eval) const {
    ImageStores stores;
    stores.train = std::make_shared<AssumedStore>(train);
    if (has_eval_data(config_)) stores.eval = std::make_shared<AssumedStore>(eval);
    return stores;
  }

  ImageStores pictures(const CifarConfig& cifar) {
    const ImageSize size{kCifarSide, kCifarSide};
    const auto of = [&](int64_t count) {
      const int64_t bytes = count * (kCifarSide * kCifarSide * kCifarChannels + 4);
      return AssumedStore::Pictures{count, size, kCifarChannels, bytes};
    };
    ImageStores stores = stores_of(of(50'000), of(10'000));
    stores.classes = cifar.coarse ? 20 : cifar.classes;
    what_ = fmt::format("the whole of CIFAR-{}", cifar.classes);
    in_memory_ = true;
    return stores;
  }

  // Grey pictures, as MNIST's; of which size, data.image.size says.
  ImageStores pictures(const IdxConfig&) {
    const auto side = static_cast<int>(config_.image.size);
    if (side == 0)
      refuse("how large its images are", model_.wants_images() ? "set data.image.size, or " : "");
    const AssumedStore::Pictures grey{kSamples, ImageSize{side, side}, 1};
    ImageStores stores = stores_of(grey, grey);
    stores.classes = outputs_of_model("classes");
    what_ += ", grey images";
    return stores;
  }

  ImageStores pictures(const TarShardsConfig& shards) {
    ImageStores stores = stores_of({}, {});
    stores.classes = shards.classes > 0 ? shards.classes : outputs_of_model("classes");
    if (shards.classes > 0)
      what_ = fmt::format("{} classes, as data.tar_shards.classes says", shards.classes);
    return stores;
  }
  ImageStores pictures(const ImageFolderConfig&) { return of_model(); }
  ImageStores pictures(const RecordsConfig&) { return of_model(); }

  template <typename Table>
  ImageStores pictures(const Table&) {
    refuse("how many features its columns make", "");
  }

  ImageStores of_model() {
    ImageStores stores = stores_of({}, {});
    stores.classes = outputs_of_model("classes");
    return stores;
  }

  const DataConfig& config_;
  const ModelTraits& model_;
  std::string file_;
  std::string what_;        // is assumed, in words
  bool in_memory_ = false;  // and counted, as far as it lies there
};

}  // namespace

OpenedData open_or_assume_data(const DataConfig& config, const ModelTraits& model, uint64_t seed) {
  const std::string missing = missing_file(config);
  if (missing.empty()) return open_data(config, model, seed, /*need_train=*/true);
  return Assumption(config, model, missing).make(seed);
}

}  // namespace lockstep
