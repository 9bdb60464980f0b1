// Labels of what is computed of several elements: reductions, products, norms, windows, recurrent layers, attention.

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "models/onnx/rules/einsum.h"
#include "models/onnx/rules/reductions.h"
#include "models/onnx/samples/node_labels.h"

namespace lockstep::onnx {
namespace {

// The same labels, after the extents of axes that are all alike have changed.
Labels with_extents(Labels labels, const Extents& extents) {
  labels.extents = extents;
  return labels;
}

// All but the first `kept` axes are taken together.
Labels kept_axes(const Labels& labels, size_t kept, int node) {
  std::vector<bool> axes(labels.extents.size(), true);
  for (size_t axis = 0; axis < std::min(kept, axes.size()); ++axis) axes[axis] = false;
  return spread(labels, axes, node);
}

// Each of the node's outputs is of these, which are all alike on the axes that its extents lack.
std::vector<Labels> for_all_outputs(const NodeLabels& node, const Labels& labels) {
  std::vector<Labels> all;
  for (size_t place = 0; place < node.node().outputs.size(); ++place)
    all.push_back(node.node().outputs[place] < 0 ? Labels{}
                                                 : with_extents(labels, node.out(place)));
  return all;
}

// ---- One axis or several ----

std::vector<Labels> of_reduction(const NodeLabels& node) {
  const std::vector<bool> axes = reduced_axes(node.view());
  const Labels labels = spread(node.in(0), axes, node.number());
  const bool keeps = node.view().integer("keepdims", 1) != 0;
  return {with_extents(keeps ? labels : without_axes(labels, axes), node.out())};
}

std::vector<bool> only(size_t rank, size_t axis) {
  std::vector<bool> axes(rank, false);
  axes[axis] = true;
  return axes;
}

std::vector<Labels> of_arg(const NodeLabels& node) {
  const NodeView& view = node.view();
  const std::vector<bool> axes =
      only(view.extents(0).size(), view.axis(view.integer("axis", 0), view.rank(0)));
  const Labels labels = spread(node.in(0), axes, node.number());
  const bool keeps = view.integer("keepdims", 1) != 0;
  return {with_extents(keeps ? labels : without_axes(labels, axes), node.out())};
}

std::vector<Labels> of_softmax(const NodeLabels& node) {
  return {spread(node.in(0), softmax_axes(node.view()), node.number())};
}

std::vector<Labels> of_cum_sum(const NodeLabels& node) {
  const NodeView& view = node.view();
  const size_t axis = view.axis(view.known_integer(1), view.rank(0));
  return {spread(node.in(0), only(view.extents(0).size(), axis), node.number())};
}

// The last axis unless told.
std::vector<Labels> of_last_axis(const NodeLabels& node) {
  const NodeView& view = node.view();
  const size_t axis = view.axis(view.integer("axis", -1), view.rank(0));
  return for_all_outputs(node,
                         spread(node.in(0), only(view.extents(0).size(), axis), node.number()));
}

// ---- Norms ----

// Its statistics are those of a lane or of all, as the config says.
std::vector<Labels> of_batch_norm(const NodeLabels& node) { return {node.in(0)}; }

std::vector<Labels> of_row_norm(const NodeLabels& node) {
  const NodeView& view = node.view();
  const size_t axis = view.axis(view.integer("axis", -1), view.rank(0));
  return for_all_outputs(node, kept_axes(node.in(0), axis, node.number()));
}

// Channels (N, C, ...) in groups: the groups' labels (N, G, 1).
Labels of_groups(const Labels& x, int64_t groups, int node) {
  const Labels channels = kept_axes(x, 2, node);
  const int64_t count = x.extents[1];
  const Labels rows = reshaped(
      Labels{{x.extents[0], count}, {channels.stored[0], channels.stored[1]}, channels.labels},
      {x.extents[0], groups, count / groups});
  return kept_axes(rows, 2, node);
}

// As many channels of each group as `to` has.
Labels as_channels(Labels groups, const Extents& to) {
  const int64_t count = groups.extents[1];
  groups.extents[2] = to[1] / count;
  Labels channels = reshaped(groups, {to[0], to[1]});
  channels.stored.resize(to.size(), 1);
  return with_extents(std::move(channels), to);
}

std::vector<Labels> of_group_norm(const NodeLabels& node) {
  const int64_t channels = node.view().extents(0)[1];
  const int64_t groups =
      node.node().op == "GroupNormalization" ? node.view().integer("num_groups", 1) : channels;
  return {as_channels(of_groups(node.in(0), groups, node.number()), node.out())};
}

std::vector<Labels> of_lrn(const NodeLabels& node) {
  return {spread(node.in(0), only(node.out().size(), 1), node.number())};
}

std::vector<Labels> of_mean_variance(const NodeLabels& node) {
  std::vector<int64_t> axes = node.node().integers("axes");
  if (axes.empty()) axes = {0, 2, 3};
  std::vector<bool> over(node.out().size(), false);
  for (const size_t axis : node.view().axes(axes, node.view().rank(0))) over[axis] = true;
  return {spread(node.in(0), over, node.number())};
}

// ---- Windows ----

std::vector<Labels> of_pool(const NodeLabels& node) {
  return for_all_outputs(node, kept_axes(node.in(0), 2, node.number()));
}

// Labels of groups of output channels, from those of the rows of a weight or bias.
Labels of_weight_rows(const Labels& weight, int64_t groups, const Extents& to, int node) {
  Labels rows = kept_axes(weight, 1, node);
  rows = Labels{{rows.extents[0]}, {rows.stored[0]}, rows.labels};
  rows = kept_axes(reshaped(rows, {1, groups, rows.extents[0] / groups}), 2, node);
  Extents row = to;
  row[0] = 1;
  return as_channels(rows, row);
}

// A weight's rows are those of output channels, (O, C / G, ...), or if transposed of inputs, (C, O / G, ...).
std::vector<Labels> of_conv(const NodeLabels& node) {
  const int number = node.number();
  const int64_t groups = node.view().integer("group", 1);
  const Extents& to = node.out();
  const bool by_outputs = node.node().op == "Conv";
  Labels made = as_channels(of_groups(node.in(0), groups, number), to);
  made =
      joined(made, of_weight_rows(node.in(1), by_outputs ? to[1] : groups, to, number), to, number);
  if (node.view().has(2))
    made = joined(made, of_weight_rows(node.in(2), to[1], to, number), to, number);
  return {made};
}

// ---- Products ----

std::vector<Labels> of_mat_mul(const NodeLabels& node) {
  Labels a = node.in(0), b = node.in(1);
  const bool row = a.extents.size() == 1, column = b.extents.size() == 1;
  if (row) a = with_axis(a, 0, 1);
  if (column) b = with_axis(b, 1, 1);
  a = spread(a, only(a.extents.size(), a.extents.size() - 1), node.number());
  b = spread(b, only(b.extents.size(), b.extents.size() - 2), node.number());
  Extents to = node.out();
  if (column) to.push_back(1);
  if (row) to.insert(to.end() - 1, 1);
  return {reshaped(joined(a, b, to, node.number()), node.out())};
}

std::vector<Labels> of_gemm(const NodeLabels& node) {
  Labels a = node.in(0), b = node.in(1);
  if (node.view().integer("transA", 0) != 0) a = transposed(a, {1, 0});
  if (node.view().integer("transB", 0) != 0) b = transposed(b, {1, 0});
  const Labels product = joined(spread(a, {false, true}, node.number()),
                                spread(b, {true, false}, node.number()),
                                node.out(),
                                node.number());
  return {joined(product, node.in(2), node.out(), node.number())};
}

// The axes of a term: letters, and those of `...` counted from the last one.
std::vector<int> axes_of(const EinsumTerm& term, size_t rank) {
  std::vector<int> axes(term.before.begin(), term.before.end());
  const size_t named = term.before.size() + term.after.size();
  for (size_t left = rank > named ? rank - named : 0; left > 0; --left)
    axes.push_back(-static_cast<int>(left));
  axes.insert(axes.end(), term.after.begin(), term.after.end());
  return axes;
}

std::vector<Labels> of_einsum(const NodeLabels& node) {
  const Einsum einsum = parse_einsum(node.view());
  const std::vector<int> to = axes_of(einsum.output, node.out().size());
  Labels made = uniform(node.out(), kNoSample);
  for (size_t place = 0; place < einsum.inputs.size(); ++place) {
    const Labels x = node.in(place);
    const std::vector<int> own = axes_of(einsum.inputs[place], x.extents.size());
    std::vector<bool> summed;  // or a diagonal's
    for (const int axis : own)
      summed.push_back(std::ranges::count(to, axis) == 0 || std::ranges::count(own, axis) > 1);
    const Labels rows = spread(x, summed, node.number());
    Labels operand{node.out(), {}, rows.labels};
    std::vector<size_t> order;
    for (size_t axis = 0; axis < own.size(); ++axis)
      if (summed[axis]) order.push_back(axis);
    for (const int axis : to)
      if (const auto at = std::ranges::find(own, axis);
          at != own.end() && !summed[static_cast<size_t>(at - own.begin())])
        order.push_back(static_cast<size_t>(at - own.begin()));
    const Labels ordered = transposed(rows, order);
    operand.labels = ordered.labels;
    size_t next = static_cast<size_t>(std::ranges::count(summed, true));
    for (const int axis : to) {
      const auto at = std::ranges::find(own, axis);
      const bool has = at != own.end() && !summed[static_cast<size_t>(at - own.begin())];
      operand.stored.push_back(has ? ordered.stored[next++] : 1);
    }
    made = joined(made, operand, node.out(), node.number());
  }
  return {made};
}

// ---- Recurrent layers, attention ----

// What all inputs together are, sample by sample: the batch's axis of each, below 0: all of it.
Labels of_batch(const NodeLabels& node,
                const std::vector<std::pair<size_t, int>>& axes,
                int64_t batch) {
  Labels made = uniform({batch}, kNoSample);
  for (const auto& [place, axis] : axes) {
    if (!node.view().has(place)) continue;
    const Labels x = node.in(place);
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

// The labels of samples on this axis of an output.
Labels on_axis(const Labels& samples, size_t axis, const Extents& to) {
  Labels made = uniform(to, kNoSample);
  made.stored[axis] = samples.stored[0];
  made.labels = samples.labels;
  return made;
}

std::vector<Labels> of_recurrent(const NodeLabels& node) {
  const bool batch_first = node.view().integer("layout", 0) != 0;
  const int input = batch_first ? 0 : 1, state = batch_first ? 0 : 1;
  const int64_t batch = node.view().extents(0)[static_cast<size_t>(input)];
  const Labels samples =
      of_batch(node,
               {{0, input}, {1, -1}, {2, -1}, {3, -1}, {4, 0}, {5, state}, {6, state}, {7, -1}},
               batch);
  std::vector<Labels> all;
  for (size_t place = 0; place < node.node().outputs.size(); ++place) {
    const size_t axis = batch_first ? 0 : place == 0 ? 2 : 1;
    all.push_back(node.node().outputs[place] < 0 ? Labels{}
                                                 : on_axis(samples, axis, node.out(place)));
  }
  return all;
}

// (B, H) of a query, key or value; of one whose heads share an axis, (B, 1).
Labels of_heads(const Labels& x, int node) {
  const bool apart = x.extents.size() == 4;
  const Labels rows = kept_axes(x, apart ? 2 : 1, node);
  return {{x.extents[0], apart ? x.extents[1] : 1},
          {rows.stored[0], apart ? rows.stored[1] : 1},
          rows.labels};
}

// Several heads of queries may share one of keys and values.
Labels for_queries(const Labels& heads, int64_t queries) {
  const int64_t own = heads.extents[1];
  Labels groups = with_axis(heads, 2, std::max<int64_t>(queries / own, 1));
  return reshaped(groups, {heads.extents[0], own * groups.extents[2]});
}

std::vector<Labels> of_attention(const NodeLabels& node) {
  const int number = node.number();
  Labels heads = of_heads(node.in(0), number);
  const Extents to = heads.extents;
  for (const size_t place : {1, 2, 4, 5})
    if (node.view().has(place))
      heads = joined(heads, for_queries(of_heads(node.in(place), number), to[1]), to, number);
  if (node.view().has(3)) {
    Labels mask = node.in(3);  // (B, H, T, T), of which the first axes may be absent
    while (mask.extents.size() < 4) mask = with_axis(mask, 0, 1);
    heads = joined(heads, of_heads(mask, number), to, number);
  }
  if (node.view().has(6)) heads = joined(heads, with_axis(node.in(6), 1, 1), to, number);
  std::vector<Labels> all;
  for (size_t place = 0; place < node.node().outputs.size(); ++place) {
    if (node.node().outputs[place] < 0) {
      all.emplace_back();
      continue;
    }
    // Keys and values of the past may have fewer heads.
    const Extents& extents = node.out(place);
    const bool alike = extents.size() == 4 && extents[1] == to[1];
    Labels made = alike ? heads : kept_axes(heads, 1, number);
    made.stored.resize(extents.size(), 1);
    all.push_back(with_extents(std::move(made), extents));
  }
  return all;
}

// Heads apart (B, H, T, D), or in one axis (B, T, H D); cosines and sines may be of positions (B, T).
std::vector<Labels> of_rotary(const NodeLabels& node) {
  const int number = node.number();
  const Extents& to = node.out();
  Labels made = kept_axes(node.in(0), to.size() == 4 ? 2 : 1, number);
  for (const size_t place : {1, 2, 3}) {
    if (!node.view().has(place)) continue;
    const bool table = place < 3 && node.view().has(3);  // (positions, D)
    Labels rows = kept_axes(node.in(place), table ? 0 : 1, number);
    rows = Labels{{to[0]}, {rows.stored[0]}, rows.labels};
    while (rows.extents.size() < to.size()) rows = with_axis(rows, rows.extents.size(), 1);
    made = joined(made, rows, to, number);
  }
  return {made};
}

// Draws are of no sample.
std::vector<Labels> of_draw(const NodeLabels& node) { return {uniform(node.out(), kNoSample)}; }

}  // namespace

LabelRule layer_label_rule(const std::string& op) {
  static const std::map<std::string, LabelRule> kRules = {
      {"ArgMax", of_arg},
      {"ArgMin", of_arg},
      {"Attention", of_attention},
      {"AveragePool", of_pool},
      {"BatchNormalization", of_batch_norm},
      {"Conv", of_conv},
      {"ConvTranspose", of_conv},
      {"CumSum", of_cum_sum},
      {"Einsum", of_einsum},
      {"GRU", of_recurrent},
      {"Gemm", of_gemm},
      {"GlobalAveragePool", of_pool},
      {"GlobalLpPool", of_pool},
      {"GlobalMaxPool", of_pool},
      {"GroupNormalization", of_group_norm},
      {"Hardmax", of_softmax},
      {"InstanceNormalization", of_group_norm},
      {"LRN", of_lrn},
      {"LSTM", of_recurrent},
      {"LayerNormalization", of_row_norm},
      {"LogSoftmax", of_softmax},
      {"LpNormalization", of_last_axis},
      {"LpPool", of_pool},
      {"MatMul", of_mat_mul},
      {"MaxPool", of_pool},
      {"MeanVarianceNormalization", of_mean_variance},
      {"RMSNormalization", of_row_norm},
      {"RNN", of_recurrent},
      {"RandomNormal", of_draw},
      {"RandomNormalLike", of_draw},
      {"RandomUniform", of_draw},
      {"RandomUniformLike", of_draw},
      {"ReduceL1", of_reduction},
      {"ReduceL2", of_reduction},
      {"ReduceLogSum", of_reduction},
      {"ReduceLogSumExp", of_reduction},
      {"ReduceMax", of_reduction},
      {"ReduceMean", of_reduction},
      {"ReduceMin", of_reduction},
      {"ReduceProd", of_reduction},
      {"ReduceSum", of_reduction},
      {"ReduceSumSquare", of_reduction},
      {"RotaryEmbedding", of_rotary},
      {"Softmax", of_softmax},
      {"TopK", of_last_axis},
  };
  const auto found = kRules.find(op);
  return found == kRules.end() ? nullptr : found->second;
}

}  // namespace lockstep::onnx
