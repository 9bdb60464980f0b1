// data.npy: inputs and labels in NumPy's .npy files. Inputs are uint8 images or float32 features;
// features may have values to predict instead of labels.
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/config/limits.h"
#include "runtime/data/format.h"
#include "runtime/data/images/image.h"
#include "runtime/data/images/npy_targets.h"

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
  if (set.masks != nullptr) {
    array.labels.assign(static_cast<size_t>(extents[0]), 0);
    array.heap_bytes += set.masks->bytes();
    array.load_mask = [masks = set.masks](int64_t index, Mask* mask) { masks->load(index, mask); };
  }
  auto file = std::make_shared<NpyFile>(std::move(set.inputs));
  array.pixels = file->array.values;
  array.owner = std::move(file);
  return make_pixel_store(std::move(array));
}

class Npy final : public DataFormat {
 public:
  Npy(const DataConfig& data, const NpyConfig& npy) : data_(data), npy_(npy) {}

  void check() const override {
    if (!npy_.targets.empty()) return check_targets();
    if (npy_.train_labels.empty())
      throw ConfigError(
          "data.npy.train_labels: missing; allowed: the path of a .npy file of labels or values");
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
  bool provides(config::TargetKind kind, config::ModelInput input) const override {
    return kind == config::TargetKind::kClass || kind == config::TargetKind::kNamed ||
           kind == config::TargetKind::kPixelClasses ||
           (input == config::ModelInput::kFeatures &&
            (kind == config::TargetKind::kYesNo || kind == config::TargetKind::kValues ||
             kind == config::TargetKind::kDistribution));
  }
  bool has_images(config::ModelInput) const override { return true; }
  bool has_eval() const override { return !npy_.eval_inputs.empty(); }
  std::vector<std::string> target_names() const override {
    std::vector<std::string> names;
    for (const NpyTarget& target : npy_.targets) names.push_back(target.name);
    return names.empty() ? std::vector<std::string>{"labels"} : names;
  }
  bool has_records() const override { return !npy_.targets.empty(); }
  void check_for_model(const config::ModelTraits& model) const override {
    if (model.targets.empty() && npy_.targets.size() > 1)
      throw ConfigError("data.npy.targets: has {}, but model.{} takes one target",
                        fmt::join(target_names(), ", "),
                        model.section);
  }
  std::vector<std::string> files() const override {
    std::vector<std::string> files = {
        npy_.train_inputs, npy_.train_labels, npy_.eval_inputs, npy_.eval_labels};
    for (const NpyTarget& target : npy_.targets)
      files.insert(files.end(), {target.train, target.eval});
    return files;
  }

  // The training labels define the number of classes. Without training data the model's number of
  // outputs is used, if it has one.
  OpenedSource open(const config::ModelTraits& model,
                    uint64_t /*seed*/,
                    bool need_train) const override {
    if (!model.targets.empty()) return open_records(model, need_train);
    std::optional<NpySet> train, eval;
    int64_t classes = model.outputs;
    const bool pixels = model.target_kind() == config::TargetKind::kPixelClasses;
    const bool values = !pixels && model.target_kind() != config::TargetKind::kClass;
    if (need_train) {
      train = open_set(npy_.train_inputs, train_labels(), "npy.train", values, kMaxClasses, model);
      if (!values && !pixels) classes = classes_of(train->labels);
    } else if (classes == 0 && !values) {
      const NpyFile labels(data_.dir, train_labels(), "npy.train_labels");
      classes = classes_of(read_npy_labels(labels, kMaxClasses, model));
    }
    if (has_eval())
      eval = open_set(npy_.eval_inputs,
                      npy_.targets.empty() ? npy_.eval_labels : npy_.targets[0].eval,
                      "npy.eval",
                      values,
                      std::max(classes, model.outputs),
                      model);
    if (train && eval) check_alike(*train, *eval);
    const bool images = train ? train->inputs.has_images() : !eval || eval->inputs.has_images();
    if (!images) {
      OpenedData opened =
          make_npy_features(data_, model, std::move(train), std::move(eval), values ? 0 : classes);
      opened.summary.labels_from = train_labels();
      return opened;
    }
    if (values)
      throw ConfigError(
          "data.npy has images with class labels, so {} must be SOFTMAX_CROSS_ENTROPY",
          model.field("loss"));
    ImageStores stores;
    stores.kind = "NPY images";
    stores.labels_from = train_labels();
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
    const bool positions = missing.model().target_kind() == config::TargetKind::kPixelClasses;
    if (side == 0 || (positions && !missing.model().wants_images()))
      missing.refuse("the number of features", "");
    const size_t given = std::max(data_.image.mean.size(), data_.image.std.size());
    const int channels = given > 1 ? static_cast<int>(given) : 3;
    PlaceholderData placeholder = missing.with_outputs_of_model("classes");
    placeholder.what += fmt::format(", images of {} channels", channels);
    placeholder.train = placeholder.eval = {kPlaceholderSamples, ImageSize{side, side}, channels};
    return placeholder;
  }

 private:
  // For models with one target.
  const std::string& train_labels() const {
    return npy_.targets.empty() ? npy_.train_labels : npy_.targets[0].train;
  }

  void check_targets() const {
    if (!npy_.train_labels.empty() || !npy_.eval_labels.empty())
      throw ConfigError("data.npy.targets: given beside {}; allowed: one of them",
                        npy_.train_labels.empty() ? "eval_labels" : "train_labels");
    std::vector<std::string> seen;
    for (const NpyTarget& target : npy_.targets) {
      if (std::ranges::count(seen, target.name) > 0)
        config::refuse_value("data.npy.targets.name", in_quotes(target.name), "each name once");
      seen.push_back(target.name);
      if (target.eval.empty() != npy_.eval_inputs.empty())
        throw ConfigError(
            "data.npy.targets.eval: {} for {}, but data.npy.eval_inputs is {}; allowed: both or "
            "neither",
            target.eval.empty() ? "missing" : "given",
            in_quotes(target.name),
            npy_.eval_inputs.empty() ? "missing" : in_quotes(npy_.eval_inputs));
    }
  }

  // For a model that names its targets. The samples have a label of 0, which nobody reads.
  OpenedSource open_records(const config::ModelTraits& model, bool need_train) const {
    const auto open = [&](const std::string& path, bool train) {
      NpyFile inputs(data_.dir, path, train ? "npy.train_inputs" : "npy.eval_inputs");
      require_inputs(inputs, model);
      const int64_t count = inputs.array.count();
      auto targets = open_npy_targets(data_, npy_, model.targets, train, count, inputs.file.name());
      NpySet set{.inputs = std::move(inputs)};
      set.labels.resize(static_cast<size_t>(count));
      return std::pair(std::move(set), std::move(targets));
    };
    std::optional<NpySet> train, eval;
    std::shared_ptr<const TargetRecords> train_targets, eval_targets;
    if (need_train || !has_eval()) std::tie(train, train_targets) = open(npy_.train_inputs, true);
    if (has_eval()) std::tie(eval, eval_targets) = open(npy_.eval_inputs, false);
    if (train && eval) {
      check_alike(*train, *eval);
      require_same_extents(*train_targets, *eval_targets);
    }
    config::ModelTraits plain = model;
    plain.targets.clear();
    plain.loss = Loss::kSoftmaxCrossEntropy;
    plain.outputs = 0;
    if ((train ? *train : *eval).inputs.has_images()) {
      ImageStores stores;
      stores.kind = "NPY images";
      stores.classes = 1;
      if (train) stores.train = make_store(std::move(*train));
      if (eval) stores.eval = make_store(std::move(*eval));
      stores.train_targets = train_targets;
      stores.eval_targets = eval_targets;
      return stores;
    }
    OpenedData opened =
        make_npy_features(data_, plain, std::move(train), std::move(eval), /*classes=*/1);
    use_records(train_targets, eval_targets, &opened);
    describe(&opened);
    return opened;
  }

  static void require_same_extents(const TargetRecords& train, const TargetRecords& eval) {
    for (size_t i = 0; i < train.parts().size(); ++i)
      if (train.parts()[i].elements() != eval.parts()[i].elements())
        throw DataError("data.npy.targets: {} is {} for training, but {} for evaluation",
                        in_quotes(train.parts()[i].name),
                        extents_in_words(train.parts()[i].extents),
                        extents_in_words(eval.parts()[i].extents));
  }

  static void require_inputs(const NpyFile& inputs, const config::ModelTraits& model) {
    const NpyType type = inputs.array.type;
    if (type != NpyType::kUint8 && type != NpyType::kFloat32)
      throw DataError("{}: has {} inputs; allowed: uint8 images or float32 features",
                      inputs.file.name(),
                      name_of(type));
    if (model.wants_images() && !inputs.has_images())
      throw DataError(
          "{}: holds float32 features, but an image model needs uint8 images (N, H, W, C), such as "
          "numpy.round(255 * x).astype(numpy.uint8) of values in [0, 1], with the channels last",
          inputs.file.name());
  }

  // `field`: the common prefix of the config fields, for example "npy.train" for npy.train_inputs.
  NpySet open_set(const std::string& inputs_path,
                  const std::string& labels_path,
                  const std::string& field,
                  bool values,
                  int64_t classes,
                  const config::ModelTraits& model) const {
    NpyFile inputs(data_.dir, inputs_path, field + "_inputs");
    NpyFile labels(data_.dir, labels_path, field + "_labels");
    require_inputs(inputs, model);
    if (inputs.array.count() != labels.array.count())
      throw DataError("{} has {} samples but {} has {} labels; the numbers must be equal",
                      inputs.file.name(),
                      inputs.array.count(),
                      labels.file.name(),
                      labels.array.count());
    NpySet set{.inputs = std::move(inputs)};
    if (model.target_kind() == config::TargetKind::kPixelClasses) {
      if (!model.wants_images() && set.inputs.has_images())
        throw DataError(
            "{}: has uint8 images, but the model takes features; allowed: float32, as from "
            "x.astype('<f4')",
            set.inputs.file.name());
      set.masks = model.wants_images() ? std::make_shared<const NpyMasks>(
                                             std::move(labels), model.outputs, set.inputs.array)
                                       : std::make_shared<const NpyMasks>(NpyMasks::of_features(
                                             std::move(labels), model.outputs));
    } else if (values && !set.inputs.has_images())
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
    if (train.masks && train.masks->sample() != eval.masks->sample())
      throw DataError("{}: the labels have other extents than those in {}",
                      eval.masks->name(),
                      train.masks->name());
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
