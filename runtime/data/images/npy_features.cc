#include "runtime/data/images/npy_features.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/format.h"

namespace lockstep {
namespace {

// Throws DataError unless all values are finite and in [low, high]. `what`: a value, for messages.
void require_numbers(const NpyFile& file, const char* what, float low, float high) {
  const NpyArray& array = file.array;
  const int64_t row = array.row();
  for (int64_t i = 0; i < array.count() * row; ++i) {
    const auto value = value_at<float>(array, i);
    if (!std::isfinite(value) || value < low || value > high)
      throw DataError("{}: {} {} of sample {} is {}; allowed: {}",
                      file.file.name(),
                      what,
                      i % row,
                      i / row,
                      value,
                      std::isinf(low) ? "finite numbers" : fmt::format("{} to {}", low, high));
  }
}

void check_features(const NpyFile& inputs) {
  if (inputs.array.extents.size() < 2)
    throw DataError("{}: the float32 array has 1 dimension; allowed: 2 (samples, features) or more",
                    inputs.file.name());
  require_numbers(inputs, "feature", -INFINITY, INFINITY);
}

void check_targets(const NpyFile& targets, Loss loss) {
  if (targets.array.type != NpyType::kFloat32)
    throw DataError("{}: has {} targets; allowed with loss {}: float32",
                    targets.file.name(),
                    name_of(targets.array.type),
                    name_of(loss));
  const bool shares = loss == Loss::kBinaryCrossEntropy;
  require_numbers(targets, "target", shares ? 0 : -INFINITY, shares ? 1 : INFINITY);
}

class NpyFeatures final : public Dataset {
 public:
  NpyFeatures(NpySet set, Loss loss) : set_(std::move(set)) {
    check_features(set_.inputs);
    if (set_.targets) check_targets(*set_.targets, loss);
    input_ = {DType::kF32, Shape{set_.inputs.array.row()}};
    target_ = set_.targets ? SampleSpec{DType::kF32, Shape{set_.targets->array.row()}}
                           : SampleSpec{DType::kI32, Shape{}};
  }

  int64_t samples() const override { return set_.inputs.array.count(); }
  const SampleSpec& input() const override { return input_; }
  const SampleSpec& target() const override { return target_; }
  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    const auto row = static_cast<size_t>(key.index);
    copy_row(set_.inputs, row, input_, input);
    if (set_.targets)
      copy_row(*set_.targets, row, target_, target);
    else
      std::memcpy(target, &set_.labels[row], sizeof(int32_t));
  }
  int32_t label(int64_t index) const override { return set_.labels[static_cast<size_t>(index)]; }
  int64_t resident_bytes() const override {
    return set_.inputs.bytes() + (set_.targets ? set_.targets->bytes() : 0) +
           static_cast<int64_t>(set_.labels.size() * sizeof(int32_t));
  }

 private:
  static void copy_row(const NpyFile& from, size_t row, const SampleSpec& spec, std::byte* to) {
    std::memcpy(to, from.array.values.data() + row * spec.bytes(), spec.bytes());
  }

  NpySet set_;
  SampleSpec input_, target_;
};

}  // namespace

OpenedData make_npy_features(const DataConfig& data,
                             const ModelTraits& model,
                             std::optional<NpySet> train,
                             std::optional<NpySet> eval,
                             int64_t classes) {
  const std::string name = (train ? train : eval)->inputs.file.name();
  if (model.wants_images())
    throw DataError("{}: holds float32 features, but an image model needs uint8 images", name);
  if (!(data.image == ImageConfig{}) || !(data.augment == AugmentConfig{}))
    throw ConfigError("data.{}: given, but {} has features; allowed: with images only",
                      data.image == ImageConfig{} ? "augment" : "image",
                      name);
  OpenedData opened;
  DataSummary& summary = opened.summary;
  if (train) {
    opened.train = std::make_unique<NpyFeatures>(std::move(*train), model.loss);
    summary.train_samples = opened.train->samples();
  }
  if (eval) {
    opened.eval = std::make_unique<NpyFeatures>(std::move(*eval), model.loss);
    summary.eval_samples = opened.eval->samples();
  }
  const Dataset& any = opened.train ? *opened.train : *opened.eval;
  summary.features = any.input().shape[0];
  summary.classes = classes;
  if (classes == 0)
    summary.target_columns = any.target().shape[0];
  else
    use_classes_of_model(model, &summary);
  summary.description =
      fmt::format("NPY features: {} training and {} evaluation samples of {}, {} {}",
                  summary.train_samples,
                  summary.eval_samples,
                  summary.features,
                  classes == 0 ? summary.target_columns : summary.classes,
                  classes == 0 ? "values to predict" : "classes");
  return opened;
}

}  // namespace lockstep
