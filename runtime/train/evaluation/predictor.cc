#include "runtime/train/evaluation/predictor.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/train/number_types.h"

namespace lockstep::train {
namespace {

// Undoes the normalization of target values to mean 0 and standard deviation 1.
void to_units_of_the_file(const data::DataSummary& data, std::vector<float>& values) {
  const size_t columns = data.target_std.size();
  for (size_t i = 0; columns > 0 && i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<double>(values[i]) * data.target_std[i % columns] +
                                   data.target_mean[i % columns]);
}

// Takes the last `targets` elements of each sample out of `elements`.
template <typename T>
void take_targets(int64_t samples, int64_t targets, std::vector<float>* elements, T* to) {
  const size_t sample = elements->size() / static_cast<size_t>(samples);
  const size_t outputs = sample - static_cast<size_t>(targets);
  to->resize(static_cast<size_t>(samples * targets));
  for (size_t i = 0; i < static_cast<size_t>(samples); ++i) {
    float* const from = elements->data() + i * sample;
    std::memcpy(to->data() + i * static_cast<size_t>(targets),
                from + outputs,
                static_cast<size_t>(targets) * sizeof(float));
    std::memmove(elements->data() + i * outputs, from, outputs * sizeof(float));
  }
  elements->resize(static_cast<size_t>(samples) * outputs);
}

}  // namespace

Predictor::Predictor(const RunContext& context, const RunMemory& memory, bool with_targets)
    : context_(context), pass_(context, memory) {
  const graph::Tensor& output = (*context.graphs.evaluation)[context.graphs.evaluation->result];
  tokens_ = output.shape.rank() > 2 ? output.shape.rows() / output.shape[0] : 0;
  columns_ = output.shape.columns();
  dtype_ = output.dtype;
  // A similarity is of two texts, not of the outputs.
  if (!with_targets || context.model.scored_kind() == config::TargetKind::kSimilarity) return;
  const std::vector<config::TargetPart>& parts = context.data.summary.targets;
  record_ = context.data.eval->target().shape.elements();
  targets_ = parts.empty()                                               ? record_
             : context.model.scored_kind() == config::TargetKind::kNamed ? 0
                                                                         : parts.front().elements();
  labels_ = parts.empty() ? context.data.eval->target().dtype == DType::kI32
                          : parts.front().type == config::TargetPart::Type::kLabels;
}

// Targets travel behind the outputs of their sample; both have elements of 32 bits.
Predictions Predictor::run() {
  const int64_t outputs = output_elements(), sample = outputs + targets_;
  std::vector<float> elements =
      pass_.collect(sample, [&](const data::LaneBatch& batch, int64_t first, std::span<float> to) {
        with_numbers(pass_.result(), dtype_, [&](const auto* from) {
          for (int64_t i = 0; i < batch.valid_samples; ++i) {
            float* const next = to.data() + i * sample;
            std::transform(from + i * outputs, from + (i + 1) * outputs, next, [](auto x) {
              return to_float(x);
            });
            std::memcpy(next + outputs,
                        batch.target + static_cast<size_t>(i * record_) * sizeof(float),
                        static_cast<size_t>(targets_) * sizeof(float));
            if (context_.data.eval->is_replaced(first + i)) clear_sample({next, next + sample});
          }
        });
      });
  Predictions found = {.samples = pass_.samples(), .tokens = tokens_, .columns = columns_};
  if (elements.empty()) return found;
  if (targets_ > 0) {
    if (labels_)
      take_targets(found.samples, targets_, &elements, &found.labels);
    else
      take_targets(found.samples, targets_, &elements, &found.values);
  }
  found.outputs = std::move(elements);
  if (tokens_ > 0) clear_padding(found.outputs);
  to_units_of_the_file(context_.data.summary, found.outputs);
  to_units_of_the_file(context_.data.summary, found.values);
  return found;
}

// A record that cannot be read has no outputs and no target.
void Predictor::clear_sample(std::span<float> elements) const {
  std::ranges::fill(elements, std::numeric_limits<float>::quiet_NaN());
  if (!labels_) return;
  constexpr int32_t kNone = -1;
  for (float& target : elements.last(static_cast<size_t>(targets_)))
    std::memcpy(&target, &kNone, sizeof(kNone));
}

// Padding follows a sample's tokens.
void Predictor::clear_padding(std::vector<float>& outputs) const {
  for (int64_t i = 0; i < pass_.samples(); ++i) {
    const int64_t length = context_.data.eval->length(i);
    if (length == 0) continue;
    const auto end = outputs.begin() + (i + 1) * output_elements();
    std::fill(end - (tokens_ - length) * columns_, end, 0.0f);
  }
}

}  // namespace lockstep::train
