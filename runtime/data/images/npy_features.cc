#include "runtime/data/images/npy_file.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/format.h"

namespace lockstep::data {
namespace {

// Nobody means numbers whose squares overflow float32: they stand for missing values, or are scaled
// wrongly.
constexpr float kHugeNumber = 1e18f;

// Samples with numbers beyond kHugeNumber.
struct HugeNumbers {
  int64_t samples = 0, last = -1;
  float example = 0;  // the first, with its place
  int64_t column = 0, sample = 0;

  void add(float value, int64_t in_column, int64_t in_sample) {
    if (std::abs(value) <= kHugeNumber || in_sample == last) return;
    if (samples++ == 0) *this = {1, in_sample, value, in_column, in_sample};
    last = in_sample;
  }
};

// Throws DataError unless all values are finite and in [low, high]. `what`: a value, for messages.
// Adds a warning of huge numbers.
void require_numbers(const NpyFile& file,
                     const char* what,
                     float low,
                     float high,
                     std::vector<std::string>* warnings) {
  const NpyArray& array = file.array;
  const int64_t row = array.row();
  HugeNumbers huge;
  for (int64_t i = 0; i < array.count() * row; ++i) {
    const auto value = value_at<float>(array, i);
    if (!std::isfinite(value) || value < low || value > high)
      throw DataError("{}: {} {} of sample {} is {}; allowed: {}{}",
                      file.file.name(),
                      what,
                      i % row,
                      i / row,
                      value,
                      std::isinf(low) ? "finite numbers" : fmt::format("{} to {}", low, high),
                      value == -1 ? "; make 0 and 1 of -1 and 1 with (y + 1) / 2" : "");
    huge.add(value, i % row, i / row);
  }
  if (huge.samples > 0)
    warnings->push_back(
        fmt::format("{}: {} of {} samples {} {}s beyond {:g}, such as {:g} in {} {} of sample {}; "
                    "their squares overflow float32: remove these samples, or scale the {}s",
                    file.file.name(),
                    huge.samples,
                    array.count(),
                    huge.samples == 1 ? "has" : "have",
                    what,
                    kHugeNumber,
                    huge.example,
                    what,
                    huge.column,
                    huge.sample,
                    what));
}

void check_features(const NpyFile& inputs, std::vector<std::string>* warnings) {
  if (inputs.array.extents.size() < 2)
    throw DataError("{}: the float32 array has 1 dimension; allowed: 2 (samples, features) or more",
                    inputs.file.name());
  require_numbers(inputs, "feature", -INFINITY, INFINITY, warnings);
}

// Throws DataError unless each row is a distribution.
void require_distributions(const NpyFile& targets) {
  constexpr double kRounding = 1e-3;  // of numbers that were float16
  const int64_t row = targets.array.row();
  for (int64_t i = 0; i < targets.array.count(); ++i) {
    double sum = 0;
    for (int64_t c = 0; c < row; ++c)
      sum += static_cast<double>(value_at<float>(targets.array, i * row + c));
    if (std::abs(sum - 1) > kRounding)
      throw DataError(
          "{}: the {} targets of sample {} have the sum {}; allowed: 1, a probability for each "
          "class, as from y / y.sum(axis=1, keepdims=True)",
          targets.file.name(),
          row,
          i,
          sum);
  }
}

void check_targets(const NpyFile& targets,
                   const config::ModelTraits& model,
                   std::vector<std::string>* warnings) {
  if (targets.array.type != NpyType::kFloat32)
    throw DataError("{}: has {} targets; allowed with loss {}: float32, as from y.astype('<f4')",
                    targets.file.name(),
                    name_of(targets.array.type),
                    lockstep::name_of(model.loss));
  const bool distribution = model.target_kind() == config::TargetKind::kDistribution;
  const bool shares = distribution || model.target_kind() == config::TargetKind::kYesNo;
  require_numbers(targets, "target", shares ? 0 : -INFINITY, shares ? 1 : INFINITY, warnings);
  if (distribution) require_distributions(targets);
}

class NpyFeatures final : public Dataset {
 public:
  NpyFeatures(NpySet set, const config::ModelTraits& model, std::vector<std::string>* warnings)
      : set_(std::move(set)) {
    check_features(set_.inputs, warnings);
    if (set_.targets) check_targets(*set_.targets, model, warnings);
    input_ = {DType::kF32, Shape{set_.inputs.array.row()}};
    target_ = set_.targets ? SampleSpec{DType::kF32, Shape{set_.targets->array.row()}}
                           : SampleSpec{DType::kI32, set_.masks ? set_.masks->sample() : Shape{}};
  }

  int64_t samples() const override { return set_.inputs.array.count(); }
  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    const auto row = static_cast<size_t>(key.index);
    copy_row(set_.inputs, row, input_, input);
    if (set_.targets)
      copy_row(*set_.targets, row, target_, target);
    else if (set_.masks)
      set_.masks->read(key.index, reinterpret_cast<int32_t*>(target));
    else
      std::memcpy(target, &set_.labels[row], sizeof(int32_t));
  }
  int32_t label(int64_t index) const override { return set_.labels[static_cast<size_t>(index)]; }
  std::string name_of(int64_t index) const override {
    return fmt::format("sample {} of {}{}",
                       index,
                       set_.inputs.file.name(),
                       set_.targets ? " and " + set_.targets->file.name()
                       : set_.masks ? " and " + set_.masks->name()
                                    : "");
  }
  int64_t resident_bytes() const override {
    return set_.inputs.bytes() + (set_.targets ? set_.targets->bytes() : 0) +
           (set_.masks ? set_.masks->bytes() : 0) +
           static_cast<int64_t>(set_.labels.size() * sizeof(int32_t));
  }

 private:
  static void copy_row(const NpyFile& from, size_t row, const SampleSpec& spec, std::byte* to) {
    std::memcpy(to, from.array.values.data() + row * spec.bytes(), spec.bytes());
  }

  NpySet set_;
};

}  // namespace

OpenedData make_npy_features(const DataConfig& data,
                             const config::ModelTraits& model,
                             std::optional<NpySet> train,
                             std::optional<NpySet> eval,
                             int64_t classes) {
  const std::string name = (train ? train : eval)->inputs.file.name();
  if (!(data.image == ImageConfig{}) || !(data.augment == AugmentConfig{}))
    throw ConfigError("data.{}: given, but {} has features; allowed: with images only",
                      data.image == ImageConfig{} ? "augment" : "image",
                      name);
  OpenedData opened;
  DataSummary& summary = opened.summary;
  if (train)
    opened.train = std::make_unique<NpyFeatures>(std::move(*train), model, &summary.warnings);
  if (eval) opened.eval = std::make_unique<NpyFeatures>(std::move(*eval), model, &summary.warnings);
  const Dataset& any = opened.train ? *opened.train : *opened.eval;
  summary.features = any.input().shape[0];
  summary.classes = classes;
  if (classes == 0)
    summary.target_columns = any.target().shape[0];
  else
    use_classes_of_model(model, opened.train.get(), &summary);
  if (any.target().shape.rank() > 0 && classes > 0) {
    config::TargetPart positions{.name = "labels", .classes = classes, .ignored = -1};
    for (int axis = 0; axis < any.target().shape.rank(); ++axis)
      positions.extents.push_back(any.target().shape[axis]);
    summary.targets = {positions};
  }
  summary.kind = "NPY features";
  summary.details = fmt::format(" of {}, {} {}",
                                summary.features,
                                classes == 0 ? summary.target_columns : summary.classes,
                                classes == 0 ? "values to predict" : "classes");
  describe(&opened);
  return opened;
}

}  // namespace lockstep::data
