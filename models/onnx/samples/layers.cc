// Labels for ops that combine several elements: reductions, products, norms, windows, recurrent
// layers, attention.

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "models/onnx/nodes/einsum.h"
#include "models/onnx/nodes/losses.h"
#include "models/onnx/nodes/reductions.h"
#include "models/onnx/samples/node_labels.h"

namespace lockstep::onnx {
namespace {

// The same labels with other extents; they may differ only in axes along which labels are constant.
Labels with_extents(Labels labels, const Extents& extents) {
  labels.extents = extents;
  return labels;
}

// Joins the labels along all but the first `kept` axes.
Labels kept_axes(const Labels& labels, size_t kept, int node) {
  std::vector<bool> axes(labels.extents.size(), true);
  for (size_t axis = 0; axis < std::min(kept, axes.size()); ++axis) axes[axis] = false;
  return spread(labels, axes, node);
}

// All outputs of the node have these labels, with their own extents.
std::vector<Labels> for_all_outputs(const NodeLabels& node, const Labels& labels) {
  std::vector<Labels> all;
  for (size_t index = 0; index < node.node().outputs.size(); ++index)
    all.push_back(node.node().outputs[index] < 0 ? Labels{}
                                                 : with_extents(labels, node.out(index)));
  return all;
}

// ---- One axis or several ----

std::vector<Labels> label_reduction(const NodeLabels& node) {
  const std::vector<bool> axes = reduced_axes(node.view());
  const Labels labels = spread(node.in(0), axes, node.number());
  const bool keeps = node.view().integer("keepdims", 1) != 0;
  return {with_extents(keeps ? labels : without_axes(labels, axes), node.out())};
}

std::vector<Labels> label_arg(const NodeLabels& node) {
  const NodeView& view = node.view();
  const std::vector<bool> axes =
      only_axis(view.extents(0).size(), view.axis(view.integer("axis", 0), view.rank(0)));
  const Labels labels = spread(node.in(0), axes, node.number());
  const bool keeps = view.integer("keepdims", 1) != 0;
  return {with_extents(keeps ? labels : without_axes(labels, axes), node.out())};
}

std::vector<Labels> label_softmax(const NodeLabels& node) {
  return {spread(node.in(0), softmax_axes(node.view()), node.number())};
}

std::vector<Labels> label_cum_sum(const NodeLabels& node) {
  const NodeView& view = node.view();
  const size_t axis = view.axis(view.known_integer(1), view.rank(0));
  return {spread(node.in(0), only_axis(view.extents(0).size(), axis), node.number())};
}

// The labels of an op over one axis, by default the last one.
std::vector<Labels> label_last_axis(const NodeLabels& node) {
  const NodeView& view = node.view();
  const size_t axis = view.axis(view.integer("axis", -1), view.rank(0));
  return for_all_outputs(
      node, spread(node.in(0), only_axis(view.extents(0).size(), axis), node.number()));
}

// ---- Norms ----

// A batch norm's statistics, of one lane or of all lanes, are ignored: see mixing.h.
std::vector<Labels> label_batch_norm(const NodeLabels& node) { return {node.in(0)}; }

std::vector<Labels> label_row_norm(const NodeLabels& node) {
  const NodeView& view = node.view();
  const size_t axis = view.axis(view.integer("axis", -1), view.rank(0));
  return for_all_outputs(node, kept_axes(node.in(0), axis, node.number()));
}

// Splits the channels of (N, C, ...) into groups and returns the labels of the groups, (N, G, 1).
Labels group_labels(const Labels& x, int64_t groups, int node) {
  const Labels channels = kept_axes(x, 2, node);
  const int64_t count = x.extents[1];
  const Labels rows = reshaped(
      Labels{{x.extents[0], count}, {channels.stored[0], channels.stored[1]}, channels.labels},
      {x.extents[0], groups, count / groups});
  return kept_axes(rows, 2, node);
}

// Expands labels of groups to the channels of a value with extents `to`.
Labels as_channels(Labels groups, const Extents& to) {
  const int64_t count = groups.extents[1];
  groups.extents[2] = to[1] / count;
  Labels channels = reshaped(groups, {to[0], to[1]});
  channels.stored.resize(to.size(), 1);
  return with_extents(std::move(channels), to);
}

std::vector<Labels> label_group_norm(const NodeLabels& node) {
  const int64_t channels = node.view().extents(0)[1];
  const int64_t groups =
      node.node().op == "GroupNormalization" ? node.view().integer("num_groups", 1) : channels;
  return {as_channels(group_labels(node.in(0), groups, node.number()), node.out())};
}

std::vector<Labels> label_lrn(const NodeLabels& node) {
  return {spread(node.in(0), only_axis(node.out().size(), 1), node.number())};
}

std::vector<Labels> label_mean_variance(const NodeLabels& node) {
  std::vector<int64_t> axes = node.node().integers("axes");
  if (axes.empty()) axes = {0, 2, 3};
  std::vector<bool> over(node.out().size(), false);
  for (const size_t axis : node.view().axes(axes, node.view().rank(0))) over[axis] = true;
  return {spread(node.in(0), over, node.number())};
}

// ---- Windows ----

std::vector<Labels> label_pool(const NodeLabels& node) {
  return for_all_outputs(node, kept_axes(node.in(0), 2, node.number()));
}

// The labels of output channels, from those of the rows of a weight or bias.
Labels weight_row_labels(const Labels& weight, int64_t groups, const Extents& to, int node) {
  Labels rows = kept_axes(weight, 1, node);
  rows = Labels{{rows.extents[0]}, {rows.stored[0]}, rows.labels};
  rows = kept_axes(reshaped(rows, {1, groups, rows.extents[0] / groups}), 2, node);
  Extents row = to;
  row[0] = 1;
  return as_channels(rows, row);
}

// A weight's rows belong to output channels, (O, C / G, ...). For a transposed convolution they
// belong to input channels, (C, O / G, ...).
std::vector<Labels> label_conv(const NodeLabels& node) {
  const int number = node.number();
  const int64_t groups = node.view().integer("group", 1);
  const Extents& to = node.out();
  const bool by_outputs = node.node().op == "Conv";
  Labels made = as_channels(group_labels(node.in(0), groups, number), to);
  made = joined(
      made, weight_row_labels(node.in(1), by_outputs ? to[1] : groups, to, number), to, number);
  if (node.view().has(2))
    made = joined(made, weight_row_labels(node.in(2), to[1], to, number), to, number);
  return {made};
}

// ---- Products ----

std::vector<Labels> label_mat_mul(const NodeLabels& node) {
  Labels a = node.in(0), b = node.in(1);
  const bool row = a.extents.size() == 1, column = b.extents.size() == 1;
  if (row) a = with_axis(a, 0, 1);
  if (column) b = with_axis(b, 1, 1);
  a = spread(a, only_axis(a.extents.size(), a.extents.size() - 1), node.number());
  b = spread(b, only_axis(b.extents.size(), b.extents.size() - 2), node.number());
  Extents to = node.out();
  if (column) to.push_back(1);
  if (row) to.insert(to.end() - 1, 1);
  return {reshaped(joined(a, b, to, node.number()), node.out())};
}

std::vector<Labels> label_gemm(const NodeLabels& node) {
  Labels a = node.in(0), b = node.in(1);
  if (node.view().integer("transA", 0) != 0) a = transposed(a, {1, 0});
  if (node.view().integer("transB", 0) != 0) b = transposed(b, {1, 0});
  const Labels product = joined(spread(a, {false, true}, node.number()),
                                spread(b, {true, false}, node.number()),
                                node.out(),
                                node.number());
  return {joined(product, node.in(2), node.out(), node.number())};
}

// The axes of a term, as numbers: letters, and negative numbers for those of `...`, counted from
// the last.
std::vector<int> axes_of(const EinsumTerm& term, size_t rank) {
  std::vector<int> axes(term.before.begin(), term.before.end());
  const size_t named = term.before.size() + term.after.size();
  for (size_t left = rank > named ? rank - named : 0; left > 0; --left)
    axes.push_back(-static_cast<int>(left));
  axes.insert(axes.end(), term.after.begin(), term.after.end());
  return axes;
}

std::vector<Labels> label_einsum(const NodeLabels& node) {
  const Einsum einsum = parse_einsum(node.view());
  const std::vector<int> to = axes_of(einsum.output, node.out().size());
  Labels made = uniform(node.out(), kNoSample);
  for (size_t index = 0; index < einsum.inputs.size(); ++index) {
    const Labels x = node.in(index);
    const std::vector<int> axes = axes_of(einsum.inputs[index], x.extents.size());
    std::vector<bool> summed;  // the axes that are summed, or of which the diagonal is taken
    for (const int axis : axes)
      summed.push_back(std::ranges::count(to, axis) == 0 || std::ranges::count(axes, axis) > 1);
    const Labels rows = spread(x, summed, node.number());
    Labels operand{node.out(), {}, rows.labels};
    std::vector<size_t> order;
    for (size_t axis = 0; axis < axes.size(); ++axis)
      if (summed[axis]) order.push_back(axis);
    for (const int axis : to)
      if (const auto at = std::ranges::find(axes, axis);
          at != axes.end() && !summed[static_cast<size_t>(at - axes.begin())])
        order.push_back(static_cast<size_t>(at - axes.begin()));
    const Labels ordered = transposed(rows, order);
    operand.labels = ordered.labels;
    size_t next = static_cast<size_t>(std::ranges::count(summed, true));
    for (const int axis : to) {
      const auto at = std::ranges::find(axes, axis);
      const bool has = at != axes.end() && !summed[static_cast<size_t>(at - axes.begin())];
      operand.stored.push_back(has ? ordered.stored[next++] : 1);
    }
    made = joined(made, operand, node.out(), node.number());
  }
  return {made};
}

// ---- Recurrent layers, attention ----

// The joined labels of all inputs, for each sample. `axes` has inputs and their batch axis; below
// 0: the input has none, and all of it counts for every sample.
Labels sample_labels(const NodeLabels& node,
                     const std::vector<std::pair<size_t, int>>& axes,
                     int64_t batch) {
  Labels made = uniform({batch}, kNoSample);
  for (const auto& [index, axis] : axes) {
    if (!node.view().has(index)) continue;
    const Labels x = node.in(index);
    std::vector<bool> others(x.extents.size(), true);
    if (axis >= 0) others[static_cast<size_t>(axis)] = false;
    const Labels rows = spread(x, others, node.number());
    made = joined(
        made,
        Labels{{batch}, {axis >= 0 ? rows.stored[static_cast<size_t>(axis)] : 1}, rows.labels},
        {batch},
        node.number());
  }
  return made;
}

// Puts the labels of samples on this axis of an output.
Labels on_axis(const Labels& samples, size_t axis, const Extents& to) {
  Labels made = uniform(to, kNoSample);
  made.stored[axis] = samples.stored[0];
  made.labels = samples.labels;
  return made;
}

std::vector<Labels> label_recurrent(const NodeLabels& node) {
  const bool batch_first = node.view().integer("layout", 0) != 0;
  const int input = batch_first ? 0 : 1, state = batch_first ? 0 : 1;
  const int64_t batch = node.view().extents(0)[static_cast<size_t>(input)];
  const Labels samples = sample_labels(
      node,
      {{0, input}, {1, -1}, {2, -1}, {3, -1}, {4, 0}, {5, state}, {6, state}, {7, -1}},
      batch);
  std::vector<Labels> all;
  for (size_t index = 0; index < node.node().outputs.size(); ++index) {
    const size_t axis = batch_first ? 0 : index == 0 ? 2 : 1;
    all.push_back(node.node().outputs[index] < 0 ? Labels{}
                                                 : on_axis(samples, axis, node.out(index)));
  }
  return all;
}

// The labels (B, H) of a query, key or value; (B, 1) if its heads share an axis with the features.
Labels head_labels(const Labels& x, int node) {
  const bool separate = x.extents.size() == 4;
  const Labels rows = kept_axes(x, separate ? 2 : 1, node);
  return {{x.extents[0], separate ? x.extents[1] : 1},
          {rows.stored[0], separate ? rows.stored[1] : 1},
          rows.labels};
}

// Repeats the heads of keys or values for the query heads that share them.
Labels for_queries(const Labels& heads, int64_t queries) {
  const int64_t kv_heads = heads.extents[1];
  Labels groups = with_axis(heads, 2, std::max<int64_t>(queries / kv_heads, 1));
  return reshaped(groups, {heads.extents[0], kv_heads * groups.extents[2]});
}

std::vector<Labels> label_attention(const NodeLabels& node) {
  const int number = node.number();
  Labels heads = head_labels(node.in(0), number);
  const Extents to = heads.extents;
  for (const size_t index : {1, 2, 4, 5})
    if (node.view().has(index))
      heads = joined(heads, for_queries(head_labels(node.in(index), number), to[1]), to, number);
  if (node.view().has(3)) {
    Labels mask = node.in(3);  // (B, H, T, T); the first axes may be missing
    while (mask.extents.size() < 4) mask = with_axis(mask, 0, 1);
    heads = joined(heads, head_labels(mask, number), to, number);
  }
  if (node.view().has(6)) heads = joined(heads, with_axis(node.in(6), 1, 1), to, number);
  std::vector<Labels> all;
  for (size_t index = 0; index < node.node().outputs.size(); ++index) {
    if (node.node().outputs[index] < 0) {
      all.emplace_back();
      continue;
    }
    // Outputs for keys and values may have fewer heads.
    const Extents& extents = node.out(index);
    const bool same_heads = extents.size() == 4 && extents[1] == to[1];
    Labels made = same_heads ? heads : kept_axes(heads, 1, number);
    made.stored.resize(extents.size(), 1);
    all.push_back(with_extents(std::move(made), extents));
  }
  return all;
}

// The input is (B, H, T, D) or (B, T, H D). Cosines and sines are (B, T, D), or tables that
// positions (B, T) index.
std::vector<Labels> label_rotary(const NodeLabels& node) {
  const int number = node.number();
  const Extents& to = node.out();
  Labels made = kept_axes(node.in(0), to.size() == 4 ? 2 : 1, number);
  for (const size_t index : {1, 2, 3}) {
    if (!node.view().has(index)) continue;
    const bool table = index < 3 && node.view().has(3);  // (positions, D)
    Labels rows = kept_axes(node.in(index), table ? 0 : 1, number);
    rows = Labels{{to[0]}, {rows.stored[0]}, rows.labels};
    while (rows.extents.size() < to.size()) rows = with_axis(rows, rows.extents.size(), 1);
    made = joined(made, rows, to, number);
  }
  return {made};
}

// The loss of an element depends on its scores and its label; that of all elements on all of them.
std::vector<Labels> label_loss(const NodeLabels& node) {
  const Labels scores = spread(node.in(0), only_axis(node.in(0).extents.size(), 1), node.number());
  const std::vector<bool> classes = only_axis(scores.extents.size(), 1);
  const Labels rows = without_axes(scores, classes);
  Labels losses = joined(rows, node.in(1), rows.extents, node.number());
  if (combines_samples(node.node()))
    losses = with_extents(uniform({}, kept_axes(losses, 0, node.number()).labels[0]), {});
  std::vector<Labels> all = {losses};
  if (node.node().outputs.size() > 1) all.push_back(node.node().outputs[1] < 0 ? Labels{} : scores);
  return all;
}

// Random numbers depend on no sample.
std::vector<Labels> label_draw(const NodeLabels& node) { return {uniform(node.out(), kNoSample)}; }

}  // namespace

LabelRule layer_label_rule(const std::string& op) {
  static const std::map<std::string, LabelRule> kRules = {
      {"ArgMax", label_arg},
      {"ArgMin", label_arg},
      {"Attention", label_attention},
      {"AveragePool", label_pool},
      {"BatchNormalization", label_batch_norm},
      {"Conv", label_conv},
      {"ConvTranspose", label_conv},
      {"CumSum", label_cum_sum},
      {"Einsum", label_einsum},
      {"GRU", label_recurrent},
      {"Gemm", label_gemm},
      {"GlobalAveragePool", label_pool},
      {"GlobalLpPool", label_pool},
      {"GlobalMaxPool", label_pool},
      {"GroupNormalization", label_group_norm},
      {"Hardmax", label_softmax},
      {"InstanceNormalization", label_group_norm},
      {"LRN", label_lrn},
      {"LSTM", label_recurrent},
      {"LayerNormalization", label_row_norm},
      {"LogSoftmax", label_softmax},
      {"LpNormalization", label_last_axis},
      {"LpPool", label_pool},
      {"MatMul", label_mat_mul},
      {"MaxPool", label_pool},
      {"MeanVarianceNormalization", label_mean_variance},
      {"NegativeLogLikelihoodLoss", label_loss},
      {"RMSNormalization", label_row_norm},
      {"RNN", label_recurrent},
      {"RandomNormal", label_draw},
      {"RandomNormalLike", label_draw},
      {"RandomUniform", label_draw},
      {"RandomUniformLike", label_draw},
      {"ReduceL1", label_reduction},
      {"ReduceL2", label_reduction},
      {"ReduceLogSum", label_reduction},
      {"ReduceLogSumExp", label_reduction},
      {"ReduceMax", label_reduction},
      {"ReduceMean", label_reduction},
      {"ReduceMin", label_reduction},
      {"ReduceProd", label_reduction},
      {"ReduceSum", label_reduction},
      {"ReduceSumSquare", label_reduction},
      {"RotaryEmbedding", label_rotary},
      {"Softmax", label_softmax},
      {"SoftmaxCrossEntropyLoss", label_loss},
      {"TopK", label_last_axis},
  };
  const auto found = kRules.find(op);
  return found == kRules.end() ? nullptr : found->second;
}

}  // namespace lockstep::onnx
