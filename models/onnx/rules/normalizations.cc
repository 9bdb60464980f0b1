// Normalizations over a batch, a layer, groups of channels. Rules only, no evaluators.

#include <algorithm>

#include "models/onnx/rules/elementwise.h"
#include "models/onnx/rules/table.h"

namespace lockstep::onnx {
namespace {

void require_vector(const NodeView& node, size_t index, int64_t extent) {
  if (node.extents(index) != Extents{extent})
    node.refuse("its input {} has extents {}; must have ({})",
                index,
                to_string(node.extents(index)),
                extent);
}

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
  for (const size_t index : {1, 2, 3, 4}) require_vector(node, index, channels);
  std::vector<Form> forms = {node.form(0)};
  forms.resize(node.outputs() < 5 ? 5 : node.outputs(), node.form(3));
  return forms;
}

std::vector<Form> rule_instance(const NodeView& node) {
  node.require_inputs(3, 3);
  node.require_floating(0);
  for (const size_t index : {1, 2}) require_vector(node, index, channels_of(node));
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
    require_vector(node, index, node.opset() < 21 ? groups : channels);
  return {node.form(0)};
}

// Outputs: the result, and for each row the mean and the inverse standard deviation.
std::vector<Form> rule_layer(const NodeView& node) {
  node.require_inputs(2, 3);
  node.require_floating(0);
  const size_t axis = node.axis(node.integer("axis", -1), node.rank(0));
  for (size_t index = 1; index < node.inputs(); ++index)
    if (node.has(index) && broadcast(node, node.extents(0), node.extents(index)) != node.extents(0))
      node.refuse("its input {} has extents {}; must be broadcastable to {}",
                  index,
                  to_string(node.extents(index)),
                  to_string(node.extents(0)));
  Form statistics{ElementType::kFloat, node.extents(0)};
  if (node.integer("stash_type", 1) != 1) statistics.type = node.type(0);
  std::fill(statistics.extents.begin() + static_cast<int64_t>(axis), statistics.extents.end(), 1);
  return {node.form(0), statistics, statistics};
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

constexpr Op kOps[] = {
    {"BatchNormalization", rule_batch},
    {"InstanceNormalization", rule_instance},
    {"GroupNormalization", rule_group},
    {"LayerNormalization", rule_layer},
    {"RMSNormalization", rule_layer},
    {"LRN", rule_lrn},
    {"LpNormalization", rule_lp},
    {"MeanVarianceNormalization", rule_mean_variance},
};

}  // namespace

std::span<const Op> normalization_ops() { return kOps; }

}  // namespace lockstep::onnx
