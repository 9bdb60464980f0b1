#include "runtime/train/evaluation/pixel_predictor.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "runtime/train/evaluation/class_of_row.h"
#include "runtime/train/number_types.h"

namespace lockstep::train {

PixelPredictor::PixelPredictor(const RunContext& context, const RunMemory& memory)
    : context_(context), pass_(context, memory) {
  const graph::Tensor& output = (*context.graphs.evaluation)[context.graphs.evaluation->result];
  height_ = output.shape[1];
  width_ = output.shape[2];
  classes_ = output.shape.columns();
  dtype_ = output.dtype;
}

// Ranks exchange elements of 32 bits: those of a sample are its predicted classes, then its
// targets.
void PixelPredictor::run(const std::function<void(const Sample& sample)>& take) {
  const int64_t pixels = height_ * width_;
  const auto write = [&](const data::LaneBatch& batch, int64_t first, std::span<float> to) {
    with_numbers(pass_.result(), dtype_, [&](const auto* logits) {
      for (int64_t i = 0; i < batch.valid_samples; ++i) {
        float* const predicted = to.data() + 2 * i * pixels;
        const bool replaced = context_.data.eval->is_replaced(first + i);
        for (int64_t p = 0; p < pixels; ++p) {
          const auto* const row = logits + (i * pixels + p) * classes_;
          predicted[p] = std::bit_cast<float>(replaced ? -1 : class_of_row(row, classes_));
        }
        std::memcpy(predicted + pixels,
                    batch.target + static_cast<size_t>(i * pixels) * sizeof(float),
                    static_cast<size_t>(pixels) * sizeof(float));
        if (replaced) std::fill_n(predicted + pixels, pixels, std::bit_cast<float>(-1));
      }
    });
  };
  std::vector<int32_t> numbers(static_cast<size_t>(2 * pixels));
  int64_t index = 0;
  pass_.collect_parts(2 * pixels, write, [&](std::span<const float> samples) {
    for (; !samples.empty(); samples = samples.subspan(numbers.size())) {
      std::memcpy(numbers.data(), samples.data(), numbers.size() * sizeof(float));
      const std::span<const int32_t> all(numbers);
      take(
          {index++, all.first(static_cast<size_t>(pixels)), all.last(static_cast<size_t>(pixels))});
    }
  });
}

}  // namespace lockstep::train
