// Norms over a batch, over groups of channels, and across channels.

#include "models/onnx/nodes/lowering/fusion_plan.h"
#include "models/onnx/nodes/lowering/lowering.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "models/onnx/read/constants.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/group_norm.h"
#include "runtime/graph/ops/local_response_norm.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

int64_t channels_of(const NodeView& node) {
  if (node.rank(0) < 2)
    node.refuse("its input has extents {}; must have 2 axes or more", to_string(node.extents(0)));
  return node.extents(0)[1];
}

// Outputs: the result, the running mean and variance; before opset 14 also those of the batch.
std::vector<Form> rule_batch(const NodeView& node) {
  node.require_inputs(5, 5);
  node.require_floating(0);
  const int64_t channels = node.rank(0) == 1 ? 1 : channels_of(node);
  for (const size_t index : {1, 2, 3, 4}) node.require_extents(index, {channels});
  std::vector<Form> forms = {node.form(0)};
  forms.resize(node.outputs() < 5 ? 5 : node.outputs(), node.form(3));
  return forms;
}

std::vector<Form> rule_instance(const NodeView& node) {
  node.require_inputs(3, 3);
  node.require_floating(0);
  for (const size_t index : {1, 2}) node.require_extents(index, {channels_of(node)});
  return {node.form(0)};
}

// Scale and bias have an element for each group in opset 18, and for each channel from opset 21 on.
std::vector<Form> rule_group(const NodeView& node) {
  node.require_inputs(3, 3);
  node.require_floating(0);
  const int64_t channels = channels_of(node);
  const int64_t groups = node.integer("num_groups", 0, 1);
  if (channels % groups != 0)
    node.refuse("has {} channels; must be a multiple of num_groups, {}", channels, groups);
  for (const size_t index : {1, 2})
    node.require_extents(index, {node.opset() < 21 ? groups : channels});
  return {node.form(0)};
}

std::vector<Form> rule_lrn(const NodeView& node) {
  node.require_floating(0);
  channels_of(node);
  if (!node.node().has("size")) node.refuse("has no attribute size");
  node.integer("size", 0, 1);
  return {node.form(0)};
}

std::vector<Form> rule_lp(const NodeView& node) {
  node.require_floating(0);
  node.axis(node.integer("axis", -1), node.rank(0));
  return {node.form(0)};
}

std::vector<Form> rule_mean_variance(const NodeView& node) {
  node.require_floating(0);
  std::vector<int64_t> axes = node.node().integers("axes");
  if (axes.empty()) axes = {0, 2, 3};
  node.axes(axes, node.rank(0));
  return {node.form(0)};
}

// A vector with a number for each channel: a parameter if this norm is its only reader, else any
// tensor.
TensorId norm_vector(Lowering& lowering, int number) {
  const int parameter = unshared_parameter(lowering, number);
  return parameter >= 0 ? lowering.parameters().unshared(parameter)
                        : lowering.layouts().plain(number);
}

// Fuses a ReLU that is the only reader.
void lower_batch_normalization(Lowering& lowering, const Node& node) {
  const float momentum = 1 - node.number("momentum", 0.9f);
  if (!(momentum > 0 && momentum <= 1))
    refuse(node,
           "momentum: value is {}; allowed: from 0 to below 1 (PyTorch's momentum is 1 - "
           "this, and 0 would leave the running statistics as they are)",
           1 - momentum);
  ops::BatchNormParameters parameters;
  parameters.gamma = norm_vector(lowering, node.input(1));
  parameters.beta = norm_vector(lowering, node.input(2));
  parameters.running_mean = lowering.parameters().running_statistic(
      node, lowering.readers().origin_of(node.input(3)), momentum);
  parameters.running_variance = lowering.parameters().running_statistic(
      node, lowering.readers().origin_of(node.input(4)), momentum);
  graph::BatchNormAttributes attributes;
  attributes.epsilon = node.number("epsilon", 1e-5f);
  attributes.synchronised = lowering.options().synchronised_norms;
  int output = node.output(0);
  const Node* reader = lowering.readers().only_reader(output);
  if (is_op(reader, "Relu")) {
    attributes.activation = Activation::kRelu;
    lowering.fusion().mark_fused(*reader);
    output = reader->output(0);
  }
  const bool images = lowering.value(node.input(0)).extents.size() > 2;
  const TensorId x = input_of(lowering, node, 0, images);
  const TensorId y = ops::batch_norm(
      lowering.builder(), lowering.name_of(node), x, kNoTensor, parameters, attributes);
  lowering.layouts().set(output, y, images);
}

// A parameter with a number for each channel, whose only reader is this norm; kNoTensor if the
// value is something else. Additional axes of extent 1 are ignored.
TensorId channel_parameter(Lowering& lowering, int number, int64_t channels) {
  const int parameter = unshared_parameter(lowering, number);
  return parameter >= 0 && elements(lowering.value(parameter).extents) == channels
             ? lowering.parameters().unshared(parameter)
             : kNoTensor;
}

// A gain and a bias, with a number for each channel or for each group of channels.
struct Affine {
  int gain = -1, bias = -1;  // values; below 0: none
};

// Expands numbers of groups of consecutive channels to a row (C).
TensorId channel_row(Lowering& lowering, int number, int64_t channels) {
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.value(number).name;
  TensorId row = lowering.layouts().plain(number);
  const int64_t count = builder.shape(row).elements();
  if (count != channels) {
    row = ops::reshape(builder, name + ".column", row, {count, 1});
    row = ops::expand(builder, name + ".groups", row, {count, channels / count});
  }
  return shaped(builder, name + ".row", row, {channels});
}

// y = x gain + bias, for gains and biases that the native op does not take.
TensorId apply(Lowering& lowering, const std::string& name, TensorId x, const Affine& affine) {
  graph::GraphBuilder& builder = lowering.builder();
  const int64_t channels = builder.shape(x).columns();
  std::vector<TensorId> inputs = {x};
  graph::PointwiseProgram program;
  int y = program.input(0);
  for (const auto& [number, function] : {std::pair(affine.gain, graph::PointwiseFunction::kMul),
                                         std::pair(affine.bias, graph::PointwiseFunction::kAdd)}) {
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
                       const graph::GroupNormAttributes& attributes,
                       Affine affine,
                       int output) {
  const Extents& extents = lowering.value(x).extents;
  const bool pixels = extents.size() > 2;
  const TensorId input = lowering.layouts().get(x, pixels);
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
  lowering.layouts().set(output, apply(lowering, name + ".affine", y, affine), pixels);
}

// The operand of the node that is not `number`, if it is a parameter with a number for each
// channel; else -1. A node may reshape it to (C, 1, 1) first; that node is fused.
int channel_operand(Lowering& lowering, const Node* node, int number, int64_t channels) {
  int other = lowering.readers().other_input(*node, number);
  const Extents& extents = lowering.value(other).extents;
  const size_t trailing = lowering.value(number).extents.size() - 2;
  if (elements(extents) != channels || extents.size() <= trailing ||
      extents[extents.size() - 1 - trailing] != channels)
    return -1;
  for (const Node& producer : lowering.readers().network().nodes) {
    if (producer.output(0) != other ||
        !(is_op(&producer, "Unsqueeze") || is_op(&producer, "Reshape")))
      continue;
    if (lowering.readers().source_of(producer.input(0)).value < 0) return -1;
    if (lowering.readers().only_reader(other) != nullptr) lowering.fusion().mark_fused(producer);
    other = producer.input(0);
    break;
  }
  return lowering.readers().source_of(other).value >= 0 ? other : -1;
}

// Every channel of an instance norm is a group.
void lower_group_normalization(Lowering& lowering, const Node& node) {
  const int64_t groups = node.op == "GroupNormalization" ? node.integer("num_groups", 1)
                                                         : lowering.value(node.input(0)).extents[1];
  append_group_norm(lowering,
                    node,
                    node.input(0),
                    {groups, node.number("epsilon", 1e-5f)},
                    {node.input(1), node.input(2)},
                    node.output(0));
}

}  // namespace

bool lower_as_group_norm(Lowering& lowering, const Node& node) {
  const Extents &x = lowering.value(node.input(0)).extents,
                &groups = lowering.value(node.output(0)).extents;
  if (x.size() < 3 || groups.size() != 3 || groups[0] != x[0] || groups[1] < 1 ||
      x[1] % groups[1] != 0)
    return false;
  const Node* const norm = lowering.readers().only_reader(node.output(0));
  if (!is_op(norm, "InstanceNormalization") ||
      lowering.readers().origin_of(norm->input(0)) != node.output(0) ||
      filling_of(lowering.value(norm->input(1))) != 1 ||
      filling_of(lowering.value(norm->input(2))) != 0)
    return false;
  const Node* const back = lowering.readers().only_reader(norm->output(0));
  if (!is_op(back, "Reshape") || lowering.value(back->output(0)).extents != x) return false;
  lowering.fusion().mark_fused(*norm);
  lowering.fusion().mark_fused(*back);
  int output = back->output(0);
  Affine affine;
  for (const auto& [op, operand] :
       {std::pair("Mul", &affine.gain), std::pair("Add", &affine.bias)}) {
    const Node* const reader = lowering.readers().only_reader(output);
    if (!is_op(reader, op)) continue;
    *operand = channel_operand(lowering, reader, output, x[1]);
    if (*operand < 0) break;
    lowering.fusion().mark_fused(*reader);
    output = reader->output(0);
  }
  append_group_norm(
      lowering, *norm, node.input(0), {groups[1], norm->number("epsilon", 1e-5f)}, affine, output);
  return true;
}

namespace {

void lower_local_response_norm(Lowering& lowering, const Node& node) {
  const int64_t size = node.integer("size", 0);
  // For an even size, ONNX has the larger half of the window after the channel, the native op
  // before it.
  if (size < 1 || size > graph::kMaxNormChannels || size % 2 == 0)
    refuse(node,
           "size: value is {}; allowed: odd numbers from 1 to {}",
           size,
           graph::kMaxNormChannels);
  if (lowering.value(node.input(0)).extents.size() < 3)
    refuse(node, "its input is a vector; allowed: images");
  const TensorId y = ops::local_response_norm(lowering.builder(),
                                              lowering.name_of(node),
                                              lowering.layouts().channels_last(node.input(0)),
                                              {.size = size,
                                               .alpha = node.number("alpha", 1e-4f),
                                               .beta = node.number("beta", 0.75f),
                                               .k = node.number("bias", 1)});
  set_output(lowering, node, y, /*channels_last=*/true);
}

constexpr NodeType kNodes[] = {
    {"BatchNormalization", rule_batch, lower_batch_normalization},
    {"InstanceNormalization", rule_instance, lower_group_normalization},
    {"GroupNormalization", rule_group, lower_group_normalization},
    {"LRN", rule_lrn, lower_local_response_norm},
    {"LpNormalization", rule_lp},
    {"MeanVarianceNormalization", rule_mean_variance},
};

}  // namespace

std::span<const NodeType> norm_nodes() { return kNodes; }

}  // namespace lockstep::onnx
