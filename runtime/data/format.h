#pragma once
// The interface of a data format. runtime/README.md explains how to add one.

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/config/model_traits.h"
#include "runtime/data/dataset.h"
#include "runtime/data/images/image_stores.h"
#include "runtime/data/placeholder.h"

namespace lockstep::data {

using DataSource = decltype(DataConfig::source);

// Samples, or images from which the image pipeline makes samples.
using OpenedSource = std::variant<OpenedData, ImageStores>;

// One data format with one config. Each virtual function answers for that config.
class DataFormat {
 public:
  virtual ~DataFormat() = default;

  // Throws ConfigError if fields of the config contradict each other.
  virtual void check() const {}
  // Throws ConfigError if a field does not fit the model. supports(model.input) must be true.
  virtual void check_for_model(const config::ModelTraits& /*model*/) const {}

  // Whether it provides samples for models that take `input`.
  virtual bool supports(config::ModelInput input) const = 0;
  // Whether samples for models that take `input` can have such targets.
  virtual bool provides(config::TargetKind kind, config::ModelInput /*input*/) const {
    return kind == config::TargetKind::kClass;
  }
  // Whether such samples are made from images, so that data.image and data.augment apply.
  virtual bool has_images(config::ModelInput input) const {
    return input == config::ModelInput::kImages;
  }
  // The names of its targets, for models that name theirs.
  virtual std::vector<std::string> target_names() const { return {"labels"}; }
  // Whether it has targets by name, so that open() makes records of the parts of
  // ModelTraits::targets and sets DataSummary::targets.
  virtual bool has_records() const { return false; }
  // Whether its tokens are byte values.
  virtual bool has_byte_tokens() const { return false; }
  // Whether several documents may share a sample of tokens. Otherwise each sample has one, at its
  // front, and padding behind it.
  virtual bool shares_samples() const { return false; }
  // Whether the config names evaluation data.
  virtual bool has_eval() const = 0;
  // Whether open() holds out data.eval_fraction itself, because what it makes of the other samples
  // depends on which they are. Otherwise open_source() splits the opened training set.
  virtual bool holds_out() const { return false; }
  // The files, file patterns or folders that the config names. Empty names are ignored.
  virtual std::vector<std::string> files() const = 0;

  // Opens and checks the files; see open_data(). supports(model.input) must be true.
  virtual OpenedSource open(const config::ModelTraits& model,
                            uint64_t seed,
                            bool need_train) const = 0;
  // The same without training data and without a need for targets: files may lack labels. A target
  // that is not there, or is none of the classes, is -1 (classes) or NaN (values).
  virtual OpenedSource open_inputs(const config::ModelTraits& model, uint64_t seed) const {
    return open(model, seed, /*need_train=*/false);
  }
  // What the config determines about the data if a file is missing. Throws DataError if that is not
  // enough for a plan.
  virtual PlaceholderData make_placeholder(const MissingFile& missing) const = 0;

  // If the file or folder at `path` looks like this format: a source with default fields that reads
  // its training images from there.
  virtual std::optional<DataSource> source_at(const std::string& /*path*/) const {
    return std::nullopt;
  }
};

// Every format specialises this for its config, in its own file; the linker reports one that does
// not. Borrows both.
template <typename Config>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data, const Config& config);

// The format of a data section, which it borrows.
std::unique_ptr<const DataFormat> format_of(const DataConfig& data);

// Opens and checks the data like open_data(), but makes no samples of images.
OpenedSource open_source(const DataConfig& config,
                         const config::ModelTraits& model,
                         uint64_t seed,
                         bool need_train);

// Like open_data() for the evaluation set only, to compute outputs without a loss: files need no
// targets. Those that are there are read; see DataFormat::open_inputs().
OpenedData open_inputs(const DataConfig& config, const config::ModelTraits& model, uint64_t seed);

// The data sections that fit the model, for messages: "data.text, data.tokens or data.synthetic".
std::string formats_for(const config::ModelTraits& model);

// source_at() of the first format that recognises `path`.
std::optional<DataSource> image_source_at(const std::string& path);

// Sets the number of classes to the model's number of outputs, if the model's config has one.
// Throws DataError if the data have more classes. `train`: the training set, or null.
void use_classes_of_model(const config::ModelTraits& model,
                          const Dataset* train,
                          DataSummary* summary);

// Throws DataError if the model has outputs for fewer than `classes`, because the `labels` do not
// begin at 0.
void require_numbering_from_0(const config::ModelTraits& model,
                              int64_t classes,
                              const LabelCounts& labels);

// Base of formats whose config has files `train` and `eval`, each a string or a list of strings.
template <typename Config>
class FileFormat : public DataFormat {
 public:
  FileFormat(const DataConfig& data, const Config& config) : data_(data), config_(config) {}

  bool has_eval() const final { return !config_.eval.empty(); }
  std::vector<std::string> files() const override {
    std::vector<std::string> names;
    add(config_.train, &names);
    add(config_.eval, &names);
    return names;
  }

 protected:
  const DataConfig& data_;
  const Config& config_;

 private:
  static void add(const std::string& name, std::vector<std::string>* names) {
    names->push_back(name);
  }
  static void add(const std::vector<std::string>& more, std::vector<std::string>* names) {
    names->insert(names->end(), more.begin(), more.end());
  }
};

// The same for texts, whose samples are tokens.
template <typename Config>
class TextFormat : public FileFormat<Config> {
 public:
  using FileFormat<Config>::FileFormat;

  bool supports(config::ModelInput input) const override {
    return input == config::ModelInput::kTokens;
  }
  bool provides(config::TargetKind kind, config::ModelInput /*input*/) const override {
    return kind == config::TargetKind::kTokens;
  }
};

}  // namespace lockstep::data
