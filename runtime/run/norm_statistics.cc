#include "runtime/run/norm_statistics.h"

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/group_norm.h"

namespace lockstep::run {
namespace {

// The relative standard error of a variance of n values is sqrt(2 / (n - 1)): 37% for 16.
constexpr int64_t kFewValues = 16;

// The number of values from which the mean and the variance of a channel are computed in training.
int64_t values_of_channel(const graph::Graph& graph, const graph::Op& op) {
  const auto& attributes = op.as<graph::BatchNormAttributes>();
  return graph.shape(op.inputs[graph::BatchNormIn::kX]).rows() *
         (attributes.synchronised ? attributes.lanes : 1);
}

std::string name_of_norm(const graph::Graph& graph, const graph::Op& op) {
  const TensorId gain = op.kind == graph::OpKind::kBatchNorm
                            ? op.inputs[graph::BatchNormIn::kGamma]
                            : op.inputs[graph::GroupNormIn::kGamma];
  return gain == kNoTensor ? fmt::format("'{}'", op.name)
                           : fmt::format("'{}' (gain '{}')", op.name, graph[gain].name);
}

std::string remedies(const RunConfig& config, const graph::Op& op) {
  std::string text = "a larger train.global_batch";
  if (config.train.lanes == 1 || op.as<graph::BatchNormAttributes>().synchronised) return text;
  text += ", fewer train.lanes";
  return text +
         (std::holds_alternative<OnnxConfig>(config.model)
              ? ", or model.onnx.batch_norm: SYNCHRONISED"
              : fmt::format(", or model.{}.sync_batch_norm: true", config::name_of(config.model)));
}

// "each of 8 lanes has 1 sample".
std::string samples_of_lanes(const TrainConfig& train) {
  const int64_t samples = train.global_batch / train.lanes;
  return fmt::format(
      "{} {} sample{}",
      train.lanes == 1 ? "the only lane has" : fmt::format("each of {} lanes has", train.lanes),
      samples,
      plural(samples));
}

void check_group_norm(const RunConfig& config, const graph::Graph& graph, const graph::Op& op) {
  const Shape& x = graph.shape(op.inputs[graph::GroupNormIn::kX]);
  const int64_t groups = op.as<graph::GroupNormAttributes>().groups;
  if (x.elements() / x[0] / groups > 1) return;
  throw ConfigError(
      "model.{}: norm {} sees 1 value in each group, so that its outputs do not depend on its "
      "inputs; allowed: 2 or more values, by larger images or fewer groups",
      config::name_of(config.model),
      name_of_norm(graph, op));
}

}  // namespace

std::vector<std::string> check_norm_statistics(const RunConfig& config,
                                               const graph::Graph& training) {
  const graph::Op* fewest = nullptr;
  for (const graph::Op& op : training.ops) {
    if (op.kind == graph::OpKind::kGroupNorm) check_group_norm(config, training, op);
    if (op.kind != graph::OpKind::kBatchNorm) continue;
    if (fewest == nullptr || values_of_channel(training, op) < values_of_channel(training, *fewest))
      fewest = &op;
  }
  if (fewest == nullptr) return {};
  const int64_t values = values_of_channel(training, *fewest);
  const std::string norm = name_of_norm(training, *fewest), allowed = remedies(config, *fewest);
  if (values == 1)
    throw ConfigError(
        "train.global_batch: value is {}, so that {}, of which batch norm {} sees 1 value for each "
        "channel in training; allowed: 2 or more values, by {}",
        config.train.global_batch,
        samples_of_lanes(config.train),
        norm,
        allowed);
  if (values >= kFewValues) return {};
  return {fmt::format(
      "batch norm {} has statistics of {} values for each channel, as {}: fewer than {} are noisy, "
      "and evaluations may be much worse than training; {} would help",
      norm,
      values,
      samples_of_lanes(config.train),
      kFewValues,
      allowed)};
}

}  // namespace lockstep::run
