// data.npy: inputs and labels in NumPy's .npy files. Inputs are uint8 images or float32 features;
// features may have values to predict instead of labels.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/format.h"
#include "runtime/data/images/image.h"
#include "runtime/data/images/npy_file.h"

namespace lockstep::data {
namespace {

int64_t classes_of(const std::vector<int32_t>& labels) {
  return int64_t{*std::ranges::max_element(labels)} + 1;
}

// Makes a store of images from an array (N, H, W) or (N, H, W, C).
std::shared_ptr<const ImageStore> make_store(NpySet set) {
  const std::vector<int64_t>& extents = set.inputs.array.extents;
  if (extents.size() != 3 && extents.size() != 4)
    throw DataError(
        "{}: the uint8 array has {} dimensions; allowed: 3 (images, height, width), or 4 with "
        "channels",
        set.inputs.file.name(),
        extents.size());
  PixelArray array;
  array.name = set.inputs.file.name();
  array.set_shape(extents[1], extents[2], extents.size() == 4 ? extents[3] : 1);
  array.labels = std::move(set.labels);
  array.heap_bytes = set.inputs.bytes();
  auto file = std::make_shared<NpyFile>(std::move(set.inputs));
  array.pixels = file->array.values;
  array.owner = std::move(file);
  return make_pixel_store(std::move(array));
}

class Npy final : public DataFormat {
 public:
  Npy(const DataConfig& data, const NpyConfig& npy) : data_(data), npy_(npy) {}

  void check() const override {
    const bool inputs = !npy_.eval_inputs.empty(), labels = !npy_.eval_labels.empty();
    if (inputs != labels)
      throw ConfigError("data.npy.{}: missing, but {} is {}; allowed: both or neither",
                        inputs ? "eval_labels" : "eval_inputs",
                        inputs ? "eval_inputs" : "eval_labels",
                        in_quotes(inputs ? npy_.eval_inputs : npy_.eval_labels));
  }

  bool supports(config::ModelInput input) const override {
    return input != config::ModelInput::kTokens;
  }
  bool has_images(config::ModelInput) const override { return true; }
  bool has_eval() const override { return !npy_.eval_inputs.empty(); }
  std::vector<std::string> files() const override {
    return {npy_.train_inputs, npy_.train_labels, npy_.eval_inputs, npy_.eval_labels};
  }

  // The training labels define the number of classes. Without training data the model's number of
  // outputs is used, if it has one.
  OpenedSource open(const config::ModelTraits& model,
                    uint64_t /*seed*/,
                    bool need_train) const override {
    std::optional<NpySet> train, eval;
    int64_t classes = model.outputs;
    const bool values = !model.wants_images() && model.loss != Loss::kSoftmaxCrossEntropy;
    if (need_train) {
      train =
          open_set(npy_.train_inputs, npy_.train_labels, "npy.train", values, kMaxClasses, model);
      if (!values) classes = classes_of(train->labels);
    } else if (classes == 0 && !values) {
      const NpyFile labels(data_.dir, npy_.train_labels, "npy.train_labels");
      classes = classes_of(read_npy_labels(labels, kMaxClasses, model));
    }
    if (has_eval())
      eval = open_set(npy_.eval_inputs,
                      npy_.eval_labels,
                      "npy.eval",
                      values,
                      std::max(classes, model.outputs),
                      model);
    if (train && eval) check_alike(*train, *eval);
    const bool images = train ? train->inputs.has_images() : !eval || eval->inputs.has_images();
    if (!images) {
      OpenedData opened =
          make_npy_features(data_, model, std::move(train), std::move(eval), values ? 0 : classes);
      opened.summary.labels_from = npy_.train_labels;
      return opened;
    }
    if (values)
      throw ConfigError(
          "data.npy has images with class labels, so {} must be SOFTMAX_CROSS_ENTROPY",
          model.field("loss"));
    ImageStores stores;
    stores.kind = "NPY images";
    stores.labels_from = npy_.train_labels;
    stores.classes = classes;
    if (train) stores.train = make_store(std::move(*train));
    if (eval) stores.eval = make_store(std::move(*eval));
    return stores;
  }

  // Assumes images of the size data.image.size.
  PlaceholderData make_placeholder(const MissingFile& missing) const override {
    const auto side = static_cast<int>(data_.image.size);
    if (side == 0 && missing.model().wants_images())
      missing.refuse("the size of its images", "set data.image.size, or ");
    if (side == 0) missing.refuse("the number of features", "");
    const size_t given = std::max(data_.image.mean.size(), data_.image.std.size());
    const int channels = given > 1 ? static_cast<int>(given) : 3;
    PlaceholderData placeholder = missing.with_outputs_of_model("classes");
    placeholder.what += fmt::format(", images of {} channels", channels);
    placeholder.train = placeholder.eval = {kPlaceholderSamples, ImageSize{side, side}, channels};
    return placeholder;
  }

 private:
  // `field`: the common prefix of the config fields, for example "npy.train" for npy.train_inputs.
  NpySet open_set(const std::string& inputs_path,
                  const std::string& labels_path,
                  const std::string& field,
                  bool values,
                  int64_t classes,
                  const config::ModelTraits& model) const {
    NpyFile inputs(data_.dir, inputs_path, field + "_inputs");
    NpyFile labels(data_.dir, labels_path, field + "_labels");
    const NpyType type = inputs.array.type;
    if (type != NpyType::kUint8 && type != NpyType::kFloat32)
      throw DataError("{}: has {} inputs; allowed: uint8 images or float32 features",
                      inputs.file.name(),
                      name_of(type));
    if (inputs.array.count() != labels.array.count())
      throw DataError("{} has {} samples but {} has {} labels; the numbers must be equal",
                      inputs.file.name(),
                      inputs.array.count(),
                      labels.file.name(),
                      labels.array.count());
    NpySet set{.inputs = std::move(inputs)};
    if (values && !set.inputs.has_images())
      set.targets = std::move(labels);
    else if (!values)
      set.labels = read_npy_labels(labels, classes, model);
    return set;
  }

  // Throws DataError if the two sets differ in type or width. Images may differ in size, as the
  // pipeline resizes them.
  static void check_alike(const NpySet& train, const NpySet& eval) {
    if (train.inputs.has_images() != eval.inputs.has_images())
      throw DataError("{}: has {} inputs, but those in {} are {}",
                      eval.inputs.file.name(),
                      name_of(eval.inputs.array.type),
                      train.inputs.file.name(),
                      name_of(train.inputs.array.type));
    if (train.inputs.has_images()) return;
    require_alike(train.inputs, eval.inputs, "features");
    if (train.targets) require_alike(*train.targets, *eval.targets, "targets");
  }
  static void require_alike(const NpyFile& train, const NpyFile& eval, const char* what) {
    if (train.array.row() != eval.array.row())
      throw DataError("{}: has {} {}, but {} has {}",
                      eval.file.name(),
                      eval.array.row(),
                      what,
                      train.file.name(),
                      train.array.row());
  }

  const DataConfig& data_;
  const NpyConfig& npy_;
};

}  // namespace

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data, const NpyConfig& npy) {
  return std::make_unique<Npy>(data, npy);
}

}  // namespace lockstep::data
