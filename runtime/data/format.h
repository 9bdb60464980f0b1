#pragma once
// What a format of data says of one of its configs. runtime/README.md tells how to add one.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/config/model_traits.h"
#include "runtime/data/assumed.h"
#include "runtime/data/dataset.h"
#include "runtime/data/images/image_stores.h"

namespace lockstep {

using DataSource = decltype(DataConfig::source);

// Samples; or images, which the pipeline of images makes samples of.
using OpenedSource = std::variant<OpenedData, ImageStores>;

class DataFormat {
 public:
  virtual ~DataFormat() = default;

  // Throws ConfigError where fields of the config do not go together; of fields that only some
  // models go with the second one, which is for models that take what the format gives.
  virtual void check() const {}
  virtual void check_for_model(const ModelTraits& /*model*/) const {}

  // Whether it has samples for models that take `input`.
  virtual bool gives(ModelInput input) const = 0;
  // Whether those may be made of images, as data.image and data.augment say.
  virtual bool has_images(ModelInput input) const { return input == ModelInput::kImages; }
  // Whether its tokens are the values of bytes.
  virtual bool has_byte_tokens() const { return false; }
  virtual bool has_eval() const = 0;
  // The files, patterns of them or folders that it names; empty names stand for none.
  virtual std::vector<std::string> files() const = 0;

  // Opens and checks the files; see open_data(). The model takes what the format gives.
  virtual OpenedSource open(const ModelTraits& model, uint64_t seed, bool need_train) const = 0;
  // The same without training data, where nobody reads the targets: labels need not be there.
  virtual OpenedSource open_inputs(const ModelTraits& model, uint64_t seed) const {
    return open(model, seed, /*need_train=*/false);
  }
  // What the config says of data whose files are not here. Throws DataError where that is not
  // enough.
  virtual AssumedData assume(const MissingFile& missing) const = 0;

  // The source whose training images are what lies at `path`, where it looks like this format; of
  // a config by default.
  virtual std::optional<DataSource> source_at(const std::string& /*path*/) const {
    return std::nullopt;
  }
};

// Every format specialises this for its config, in its own file; one that does not is an error of
// the linker. Borrows both.
template <typename Config>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data, const Config& config);

// The format of a data section, which it borrows.
std::unique_ptr<const DataFormat> format_of(const DataConfig& data);

// open_data() of the evaluation set, for outputs without a loss: nobody reads the targets, and files
// of texts need no labels.
OpenedData open_inputs(const DataConfig& config, const ModelTraits& model, uint64_t seed);

// The sections of the formats that the model takes: "data.text, data.tokens or data.synthetic".
std::string formats_for(const ModelTraits& model);

// The source of the first format to which `path` looks like its own; none: it is nobody's.
std::optional<DataSource> image_source_at(const std::string& path);

// `eval_fraction` splits the training data; next to separate evaluation data it would do nothing.
// Throws ConfigError; `section` is the format's.
void check_eval_split(const std::string& section, const std::string& eval, float eval_fraction);

// Where targets are classes: makes them as many as the model's config says, if it does. Throws
// DataError where the data have more.
void use_classes_of_model(const ModelTraits& model, DataSummary* summary);

// A format whose config names its files as `train` and `eval`, each a string or a list of strings.
template <typename Config>
class FileFormat : public DataFormat {
 public:
  FileFormat(const DataConfig& data, const Config& config) : data_(data), config_(config) {}

  bool has_eval() const override { return !config_.eval.empty(); }
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

}  // namespace lockstep
