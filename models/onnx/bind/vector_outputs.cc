#include "models/onnx/bind/vector_outputs.h"

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/concat.h"
#include "runtime/graph/ops/contrastive.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {

void check_vector_fields(const OnnxConfig& config) {
  if (config.losses.empty() || config.losses.size() > 2)
    throw ConfigError(
        "model.onnx.losses: {} are given; allowed with model.onnx.loss CONTRASTIVE: one, the "
        "output with the vectors of the partners of model.onnx.output, or two, also that of hard "
        "negatives",
        config.losses.size());
  for (const OnnxLoss& loss : config.losses) {
    if (!loss.target.empty())
      config::refuse_value(
          "model.onnx.losses.target", in_quotes(loss.target), "none with loss CONTRASTIVE");
    if (loss.weight != 1)
      config::refuse_value("model.onnx.losses.weight", loss.weight, "1 with loss CONTRASTIVE");
  }
}

void check_vector_outputs(const OnnxConfig& config,
                          const std::vector<const Value*>& outputs,
                          int64_t samples) {
  for (const Value* output : outputs) {
    const Extents& extents = output->extents;
    if (is_floating(output->type) && extents.size() == 2 && extents[0] == samples &&
        extents[1] == outputs.front()->extents[1])
      continue;
    throw ConfigError(
        "{}: \"{}\" of {} is {} with extents {} for {}; allowed with loss CONTRASTIVE: float (N, "
        "D), a vector for each sample, of the same D as model.onnx.output",
        output == outputs.front() ? "model.onnx.output" : "model.onnx.losses.output",
        output->name,
        config.file,
        name_of(output->type),
        to_string(extents),
        samples == 1 ? "one sample" : fmt::format("{} samples", samples));
  }
}

void append_comparison(Lowering& lowering,
                       const DataInputs& data,
                       const std::vector<int>& outputs) {
  graph::GraphBuilder& builder = lowering.builder();
  std::vector<TensorId> vectors;
  for (const int output : outputs) vectors.push_back(lowering.layouts().plain(output));
  const Shape shape = builder.shape(vectors.front());
  const auto count = static_cast<int64_t>(vectors.size());
  const TensorId of_samples = ops::concat(builder, "vectors.of_samples", vectors, 1);
  const TensorId rows =
      ops::reshape(builder, "vectors.rows", of_samples, {shape[0] * count, shape[1]});
  ops::contrastive(builder,
                   rows,
                   count,
                   data.record ? data.record->tensor() : kNoTensor,
                   builder.options().contrastive);
}

}  // namespace lockstep::onnx
