#include "runtime/train/evaluation/predictor.h"

#include <algorithm>

#include "runtime/base/half.h"

namespace lockstep {
namespace {

template <typename T>
void widen(const std::byte* from, size_t count, float* to) {
  const auto* values = reinterpret_cast<const T*>(from);
  for (size_t i = 0; i < count; ++i) to[i] = to_float(values[i]);
}

void to_floats(const std::byte* from, DType dtype, size_t count, float* to) {
  switch (dtype) {
    case DType::kF32: std::copy_n(reinterpret_cast<const float*>(from), count, to); return;
    case DType::kBF16: widen<BFloat16>(from, count, to); return;
    case DType::kF16: widen<Float16>(from, count, to); return;
    default: LOCKSTEP_CHECK(false, "an output of another type ");
  }
}

// Undoes the normalization of target values to mean 0 and standard deviation 1.
void to_units_of_the_file(const DataSummary& data, std::vector<float>& outputs) {
  const size_t columns = data.target_std.size();
  for (size_t i = 0; columns > 0 && i < outputs.size(); ++i)
    outputs[i] = static_cast<float>(static_cast<double>(outputs[i]) * data.target_std[i % columns] +
                                    data.target_mean[i % columns]);
}

}  // namespace

Predictor::Predictor(const RunContext& context, const RunMemory& memory)
    : context_(context), pass_(context, memory) {
  const Tensor& output = (*context.evaluation)[context.evaluation->result];
  lane_batch_ = output.shape[0];
  tokens_ = output.shape.rank() > 2 ? output.shape.rows() / lane_batch_ : 0;
  columns_ = output.shape.columns();
  dtype_ = output.dtype;
}

std::vector<float> Predictor::run() {
  const auto lane_elements = static_cast<size_t>(lane_batch_ * sample_elements());
  const auto lanes = static_cast<size_t>(context_.local_lanes());
  const auto first = static_cast<size_t>(context_.communicator.rank()) * lanes;
  const bool root = context_.communicator.rank() == 0;
  std::vector<float> step(lane_elements * static_cast<size_t>(context_.plan.lanes));
  std::vector<float> outputs;
  const auto wanted = static_cast<size_t>(samples() * sample_elements());
  if (root) outputs.reserve(wanted);
  EvaluationPass::Visitor visitor;
  visitor.lane_done = [&](size_t lane, const LaneBatch&, int64_t) {
    to_floats(pass_.result(), dtype_, lane_elements, &step[(first + lane) * lane_elements]);
  };
  // Samples fill the lanes in order, so only the end of the last step is padding.
  visitor.step_done = [&] {
    context_.communicator.all_gather(reinterpret_cast<std::byte*>(step.data()),
                                     lanes * lane_elements * sizeof(float));
    if (!root) return;
    const size_t count = std::min(step.size(), wanted - outputs.size());
    outputs.insert(outputs.end(), step.begin(), step.begin() + static_cast<ptrdiff_t>(count));
  };
  pass_.run(visitor);
  if (root && tokens_ > 0) clear_padding(outputs);
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

}  // namespace lockstep
