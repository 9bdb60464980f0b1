#include "runtime/data/images/flattened.h"

#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/format.h"

namespace lockstep::data {
namespace {

class FlattenedDataset final : public Dataset {
 public:
  FlattenedDataset(std::unique_ptr<Dataset> images,
                   const std::vector<float>& mean,
                   const std::vector<float>& std)
      : images_(std::move(images)), normalised_(mean.size()) {
    input_ = {DType::kF32, Shape{images_->input().shape.elements()}};
    for (size_t c = 0; c < mean.size(); ++c)
      for (int byte = 0; byte < 256; ++byte)
        normalised_[c][static_cast<size_t>(byte)] =
            (static_cast<float>(byte) / 255.0f - mean[c]) / std[c];
  }

  int64_t samples() const override { return images_->samples(); }
  const SampleSpec& input() const override { return input_; }
  const SampleSpec& target() const override { return images_->target(); }

  // The bytes are read into the last quarter of the memory for the floats. Float i ends before byte
  // i + 1 begins, so in ascending order no byte is overwritten before it is read.
  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    const auto features = static_cast<size_t>(input_.shape[0]);
    std::byte* bytes = input + 3 * features;
    images_->read(key, bytes, target);
    const size_t channels = normalised_.size();
    for (size_t i = 0; i < features; i += channels)
      for (size_t c = 0; c < channels; ++c) {
        const float x = normalised_[c][std::to_integer<size_t>(bytes[i + c])];
        std::memcpy(input + 4 * (i + c), &x, sizeof(x));
      }
  }

  int64_t resident_bytes() const override { return images_->resident_bytes(); }
  int32_t label(int64_t index) const override { return images_->label(index); }
  std::vector<std::string> files() const override { return images_->files(); }
  std::string name_of(int64_t index) const override { return images_->name_of(index); }
  SampleOrder order() const override { return images_->order(); }
  bool is_expensive() const override { return images_->is_expensive(); }
  uint64_t checksum() const override { return images_->checksum(); }
  int64_t bad_records() const override { return images_->bad_records(); }

 private:
  std::unique_ptr<Dataset> images_;
  std::vector<std::array<float, 256>> normalised_;  // (channels)
  SampleSpec input_;
};

}  // namespace

OpenedData flatten_images(OpenedData images, const config::ModelTraits& model) {
  if (model.loss != Loss::kSoftmaxCrossEntropy)
    throw ConfigError("data: images have class labels, so {} must be SOFTMAX_CROSS_ENTROPY",
                      model.field("loss"));
  DataSummary& summary = images.summary;
  use_classes_of_model(model, images.train.get(), &summary);
  for (std::unique_ptr<Dataset>* dataset : {&images.train, &images.eval})
    if (*dataset != nullptr)
      *dataset = std::make_unique<FlattenedDataset>(std::move(*dataset), summary.mean, summary.std);
  summary.height = summary.width = summary.channels = 0;
  summary.mean.clear();
  summary.std.clear();
  return images;
}

}  // namespace lockstep::data
