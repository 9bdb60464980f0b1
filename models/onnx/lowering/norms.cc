// Norms of images over groups of channels, and across channels.
#include <fmt/format.h>

#include <algorithm>

#include "models/onnx/constants.h"
#include "models/onnx/lowering/layers.h"
#include "runtime/graph/ops/group_norm.h"
#include "runtime/graph/ops/local_response_norm.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

// A parameter with a number for each channel, whose only reader is this norm; kNoTensor if the
// value is something else. Additional axes of extent 1 are ignored.
TensorId channel_parameter(Lowering& lowering, int number, int64_t channels) {
  const Lowering::Source source = lowering.source_of(number);
  if (source.value < 0 || source.transposed ||
      elements(lowering.value(source.value).extents) != channels ||
      !lowering.can_have(source.value, Storage::kAsInFile) ||
      lowering.only_reader(source.value) == nullptr)
    return kNoTensor;
  return lowering.unshared_parameter(source.value);
}

// A gain and a bias, with a number for each channel or for each group of channels.
struct Affine {
  int gain = -1, bias = -1;  // values; below 0: none
};

// Expands numbers of groups of consecutive channels to a row (C).
TensorId channel_row(Lowering& lowering, int number, int64_t channels) {
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.value(number).name;
  TensorId row = lowering.plain(number);
  const int64_t count = builder.shape(row).elements();
  if (count != channels) {
    row = ops::reshape(builder, name + ".column", row, {count, 1});
    row = ops::expand(builder, name + ".groups", row, {count, channels / count});
  }
  return builder.shape(row) == Shape({channels})
             ? row
             : ops::reshape(builder, name + ".row", row, {channels});
}

// y = x gain + bias, for gains and biases that the native op does not take.
TensorId apply(Lowering& lowering, const std::string& name, TensorId x, const Affine& affine) {
  GraphBuilder& builder = lowering.builder();
  const int64_t channels = builder.shape(x).columns();
  std::vector<TensorId> inputs = {x};
  PointwiseProgram program;
  int y = program.input(0);
  for (const auto& [number, function] : {std::pair(affine.gain, PointwiseFunction::kMul),
                                         std::pair(affine.bias, PointwiseFunction::kAdd)}) {
    if (number < 0) continue;
    y = program.append(function, y, program.input(static_cast<int>(inputs.size())));
    inputs.push_back(channel_row(lowering, number, channels));
  }
  program.set_result(y);
  return inputs.size() == 1 ? x : ops::pointwise(builder, name, inputs, program);
}

// Appends the group norm of value x, as the value `output`.
void append_group_norm(Lowering& lowering,
                       const Node& node,
                       int x,
                       const GroupNormAttributes& attributes,
                       Affine affine,
                       int output) {
  const Extents& extents = lowering.value(x).extents;
  const bool pixels = extents.size() > 2;
  const TensorId input = pixels ? lowering.channels_last(x) : lowering.plain(x);
  TensorId gamma = kNoTensor, beta = kNoTensor;
  if (affine.gain >= 0) {
    gamma = channel_parameter(lowering, affine.gain, extents[1]);
    if (gamma != kNoTensor || filling_of(lowering.value(affine.gain)) == 1) affine.gain = -1;
  }
  // If the gain is applied by apply(), the bias must be, too, because it comes after the gain.
  if (affine.bias >= 0 && affine.gain < 0) {
    beta = channel_parameter(lowering, affine.bias, extents[1]);
    if (beta != kNoTensor || filling_of(lowering.value(affine.bias)) == 0) affine.bias = -1;
  }
  const std::string name = lowering.name_of(node);
  const TensorId y = ops::group_norm(lowering.builder(), name, input, gamma, beta, attributes);
  lowering.set(output, apply(lowering, name + ".affine", y, affine), pixels);
}

// The operand of the node that is not `number`, if it is a parameter with a number for each
// channel; else -1. A node may reshape it to (C, 1, 1) first; that node is fused.
int channel_operand(Lowering& lowering, const Node* node, int number, int64_t channels) {
  int other = node->input(lowering.origin_of(node->input(0)) == number ? 1 : 0);
  const Extents& extents = lowering.value(other).extents;
  const size_t trailing = lowering.value(number).extents.size() - 2;
  if (elements(extents) != channels || extents.size() <= trailing ||
      extents[extents.size() - 1 - trailing] != channels)
    return -1;
  for (const Node& producer : lowering.network().nodes) {
    if (producer.output(0) != other ||
        !(is_op(&producer, "Unsqueeze") || is_op(&producer, "Reshape")))
      continue;
    if (lowering.source_of(producer.input(0)).value < 0) return -1;
    if (lowering.only_reader(other) != nullptr) lowering.mark_fused(producer);
    other = producer.input(0);
    break;
  }
  return lowering.source_of(other).value >= 0 ? other : -1;
}

}  // namespace

void lower_group_normalization(Lowering& lowering, const Node& node) {
  append_group_norm(lowering,
                    node,
                    node.input(0),
                    {node.integer("num_groups", 1), node.number("epsilon", 1e-5f)},
                    {node.input(1), node.input(2)},
                    node.output(0));
}

void lower_instance_normalization(Lowering& lowering, const Node& node) {
  append_group_norm(lowering,
                    node,
                    node.input(0),
                    {lowering.value(node.input(0)).extents[1], node.number("epsilon", 1e-5f)},
                    {node.input(1), node.input(2)},
                    node.output(0));
}

bool lower_as_group_norm(Lowering& lowering, const Node& node) {
  const Extents &x = lowering.value(node.input(0)).extents,
                &groups = lowering.value(node.output(0)).extents;
  if (x.size() < 3 || groups.size() != 3 || groups[0] != x[0] || groups[1] < 1 ||
      x[1] % groups[1] != 0)
    return false;
  const Node* const norm = lowering.only_reader(node.output(0));
  if (!is_op(norm, "InstanceNormalization") ||
      lowering.origin_of(norm->input(0)) != node.output(0) ||
      filling_of(lowering.value(norm->input(1))) != 1 ||
      filling_of(lowering.value(norm->input(2))) != 0)
    return false;
  const Node* const back = lowering.only_reader(norm->output(0));
  if (!is_op(back, "Reshape") || lowering.value(back->output(0)).extents != x) return false;
  lowering.mark_fused(*norm);
  lowering.mark_fused(*back);
  int output = back->output(0);
  Affine affine;
  for (const auto& [op, operand] :
       {std::pair("Mul", &affine.gain), std::pair("Add", &affine.bias)}) {
    const Node* const reader = lowering.only_reader(output);
    if (!is_op(reader, op)) continue;
    *operand = channel_operand(lowering, reader, output, x[1]);
    if (*operand < 0) break;
    lowering.mark_fused(*reader);
    output = reader->output(0);
  }
  append_group_norm(
      lowering, *norm, node.input(0), {groups[1], norm->number("epsilon", 1e-5f)}, affine, output);
  return true;
}

void lower_local_response_norm(Lowering& lowering, const Node& node) {
  const int64_t size = node.integer("size", 0);
  // For an even size, ONNX has the larger half of the window after the channel, the native op
  // before it.
  if (size < 1 || size > kMaxNormChannels || size % 2 == 0)
    refuse(node,
           fmt::format(
               "size: value is {}; allowed: odd numbers from 1 to {}", size, kMaxNormChannels));
  if (lowering.value(node.input(0)).extents.size() < 3)
    refuse(node, "its input is a vector; allowed: images");
  const TensorId y = ops::local_response_norm(lowering.builder(),
                                              lowering.name_of(node),
                                              lowering.channels_last(node.input(0)),
                                              {.size = size,
                                               .alpha = node.number("alpha", 1e-4f),
                                               .beta = node.number("beta", 0.75f),
                                               .k = node.number("bias", 1)});
  lowering.set(node.output(0), y, /*channels_last=*/true);
}

}  // namespace lockstep::onnx
