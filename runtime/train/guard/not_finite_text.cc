#include "runtime/train/guard/not_finite_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/train/guard/numeric_fault.h"

namespace lockstep::train {
namespace {

constexpr size_t kNamedSamples = 3;

// Whether the tensor has the sums of a loss.
bool is_loss(const graph::Tensor& tensor) { return tensor.dtype == DType::kF64; }

}  // namespace

data::TrainingOrder order_of(const RunConfig& config) {
  return {config.seed, config.data.shuffle, config.train.global_batch};
}

std::string number_text(double number) {
  return std::isnan(number) ? "nan" : fmt::format("{}", number);
}

std::string text_of_op(
    const graph::Graph& graph, const graph::Op& op, int64_t number, TensorId id, bool of_mask) {
  const graph::Tensor& tensor = graph[id];
  const std::string of_op = fmt::format("the {} '{}'", graph::name_of(op.kind), op.name);
  if (is_loss(tensor)) return fmt::format("the loss of {} is the first that is not finite", of_op);
  switch (tensor.role) {
    case graph::Role::kInput:
      return fmt::format("{} of the data, which {} reads, is not finite", tensor.name, of_op);
    case graph::Role::kParameter:
      return fmt::format("the parameter {}, which {} reads, is not finite", tensor.name, of_op);
    case graph::Role::kParameterGradient:
      return fmt::format(
          "the gradient {} of {} is the first that is not finite", tensor.name, of_op);
    case graph::Role::kConstant:
      return fmt::format("the constant {}, which {} reads, is not a number", tensor.name, of_op);
    default:
      return fmt::format(
          "the {} {} of {} is the first that is not {}",
          static_cast<size_t>(number) < graph.forward_ops ? "activation" : "activation's gradient",
          tensor.name,
          of_op,
          !of_mask ? "finite"
          : op.kind == graph::OpKind::kSoftmax
              ? "a number: all elements of a row of its input are -infinity, "
                "because a mask hides the whole row"
              : "a number: it comes from -infinity in a mask");
  }
}

std::string words_of_rows(const std::vector<int64_t>& rows,
                          std::span<const data::SampleKey> samples,
                          const data::Dataset& dataset) {
  if (rows.empty() || rows.back() >= static_cast<int64_t>(samples.size())) return "";
  if (rows.size() == samples.size() && rows.size() > 1)
    return fmt::format(", for all {} samples of the lane", rows.size());
  std::string text;
  for (size_t i = 0; i < std::min(rows.size(), kNamedSamples); ++i)
    text += fmt::format("{}{}",
                        i == 0 ? ", for " : ", ",
                        dataset.name_of(samples[static_cast<size_t>(rows[i])].index));
  if (rows.size() > kNamedSamples) text += fmt::format(" and {} more", rows.size() - kNamedSamples);
  return text;
}

std::string words_of_inputs(const graph::Graph& graph, const std::vector<OpValues::Input>& inputs) {
  std::string text;
  for (const auto& [id, largest] : inputs)
    text += fmt::format(
        "{}{} up to {:.3g}", text.empty() ? " (it reads " : ", ", graph[id].name, largest);
  return text.empty() ? "" : text + ")";
}

data::LargestNumbers largest_of_step(const RunContext& context, int64_t done) {
  const data::Dataset& dataset = *context.data.train;
  const data::TrainingOrder order = order_of(context.config);
  try {
    return data::largest_numbers(
        dataset, data::training_samples(dataset, order, done, 0, order.global_batch));
  } catch (const Error&) {
    return {};
  }
}

std::string words_for_explosion(const RunConfig& config,
                                const data::LargestNumbers& largest,
                                const data::Dataset& dataset) {
  const std::string data = data::words_for(largest, dataset);
  const float clip = config.optimizer.clip_norm;
  return fmt::format(": {}; {}",
                     data.empty()
                         ? fmt::format("schedule.lr {:g} is probably too high", config.schedule.lr)
                         : fmt::format("{}; give {}, or lower schedule.lr {:g}",
                                       data,
                                       scaled(data::what_is_large(largest), config),
                                       config.schedule.lr),
                     clip > 0 ? fmt::format("optimizer.clip_norm {:g} limits the updates", clip)
                              : std::string("optimizer.clip_norm would limit the updates"));
}

}  // namespace lockstep::train
