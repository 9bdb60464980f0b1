#include "runtime/train/evaluation/predictor.h"

#include "runtime/train/number_types.h"

namespace lockstep::train {
namespace {

// Undoes the normalization of target values to mean 0 and standard deviation 1.
void to_units_of_the_file(const data::DataSummary& data, std::vector<float>& outputs) {
  const size_t columns = data.target_std.size();
  for (size_t i = 0; columns > 0 && i < outputs.size(); ++i)
    outputs[i] = static_cast<float>(static_cast<double>(outputs[i]) * data.target_std[i % columns] +
                                    data.target_mean[i % columns]);
}

}  // namespace

Predictor::Predictor(const RunContext& context, const RunMemory& memory)
    : context_(context), pass_(context, memory) {
  const graph::Tensor& output = (*context.graphs.evaluation)[context.graphs.evaluation->result];
  tokens_ = output.shape.rank() > 2 ? output.shape.rows() / output.shape[0] : 0;
  columns_ = output.shape.columns();
  dtype_ = output.dtype;
}

std::vector<float> Predictor::run() {
  std::vector<float> outputs =
      pass_.collect(sample_elements(), [&](const data::LaneBatch&, int64_t, std::span<float> to) {
        with_numbers(pass_.result(), dtype_, [&](const auto* from) {
          std::transform(from, from + to.size(), to.begin(), [](auto x) { return to_float(x); });
        });
      });
  if (context_.communicator.rank() == 0 && tokens_ > 0) clear_padding(outputs);
  to_units_of_the_file(context_.data.summary, outputs);
  return outputs;
}

// Padding follows a sample's tokens.
void Predictor::clear_padding(std::vector<float>& outputs) const {
  for (int64_t i = 0; i < samples(); ++i) {
    const int64_t length = context_.data.eval->length(i);
    if (length == 0) continue;
    const auto end = outputs.begin() + (i + 1) * sample_elements();
    std::fill(end - (tokens_ - length) * columns_, end, 0.0f);
  }
}

}  // namespace lockstep::train
