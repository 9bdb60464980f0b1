#include "runtime/data/images/image_dataset.h"

#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/format.h"

namespace lockstep::data {
namespace {

class FlattenedDataset final : public WrappedDataset {
 public:
  FlattenedDataset(std::unique_ptr<Dataset> images,
                   const std::vector<float>& mean,
                   const std::vector<float>& std)
      : WrappedDataset(std::move(images)), normalised_(mean.size()) {
    input_ = {DType::kF32, Shape{dataset_->input().shape.elements()}};
    for (size_t c = 0; c < mean.size(); ++c)
      for (int byte = 0; byte < 256; ++byte)
        normalised_[c][static_cast<size_t>(byte)] =
            (static_cast<float>(byte) / 255.0f - mean[c]) / std[c];
  }

  // The bytes are read into the last quarter of the memory for the floats. Float i ends before byte
  // i + 1 begins, so in ascending order no byte is overwritten before it is read.
  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    const auto features = static_cast<size_t>(input_.shape[0]);
    std::byte* bytes = input + 3 * features;
    dataset_->read(key, bytes, target);
    const size_t channels = normalised_.size();
    for (size_t i = 0; i < features; i += channels)
      for (size_t c = 0; c < channels; ++c) {
        const float x = normalised_[c][std::to_integer<size_t>(bytes[i + c])];
        std::memcpy(input + 4 * (i + c), &x, sizeof(x));
      }
  }

 private:
  std::vector<std::array<float, 256>> normalised_;  // (channels)
};

}  // namespace

OpenedData flatten_images(OpenedData images, const config::ModelTraits& model) {
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
