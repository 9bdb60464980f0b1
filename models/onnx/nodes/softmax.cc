// Softmax, LogSoftmax, Hardmax.
#include <algorithm>
#include <cmath>
#include <limits>

#include "models/onnx/nodes/attention.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "models/onnx/nodes/reductions.h"
#include "models/onnx/nodes/strided.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/softmax.h"

namespace lockstep::onnx {
std::vector<bool> softmax_axes(const NodeView& node) {
  const bool old = node.opset() < 13;
  std::vector<bool> axes(node.extents(0).size(), false);
  const size_t axis = axis_of(node, old ? 1 : -1);
  for (size_t i = axis; i < (old ? axes.size() : axis + 1); ++i) axes[i] = true;
  return axes;
}

namespace {

std::vector<Form> rule_softmax(const NodeView& node) {
  node.require_floating(0);
  softmax_axes(node);
  return {node.form(0)};
}

// The inverse of rows_of: moves the reduced axes back to where they were in the input.
Array from_rows(const NodeView& node,
                const std::vector<bool>& last,
                ElementType type,
                const std::vector<double>& values) {
  const Extents& to = node.extents(0);
  Extents extents;
  std::vector<size_t> order;
  for (const bool turn : {false, true})
    for (size_t i = 0; i < last.size(); ++i)
      if (last[i] == turn) {
        extents.push_back(to[i]);
        order.push_back(i);
      }
  const std::vector<int64_t> row_strides = strides_of(extents);
  std::vector<int64_t> strides(to.size());
  for (size_t i = 0; i < order.size(); ++i) strides[order[i]] = row_strides[i];
  return strided_copy(array_from(type, extents, values), to, strides);
}

std::vector<Array> evaluate_softmax(const NodeView& node, const std::vector<Form>& outputs) {
  const bool log = node.node().op == "LogSoftmax";
  const std::vector<bool> axes = softmax_axes(node);
  const Rows rows = rows_of(node, axes);
  std::vector<double> values = rows.array.as_double();
  for (size_t i = 0; i < rows.count; ++i) {
    double* row = values.data() + i * rows.length;
    const double max = max_of(row, rows.length);
    double total = 0;
    for (size_t k = 0; k < rows.length; ++k) total += std::exp(row[k] - max);
    for (size_t k = 0; k < rows.length; ++k)
      row[k] = log ? row[k] - max - std::log(total) : std::exp(row[k] - max) / total;
  }
  return {from_rows(node, axes, outputs[0].type, values)};
}

std::vector<Form> rule_hardmax(const NodeView& node) { return rule_softmax(node); }

// The input of a node's softmax. With `boolean_mask`, the exporter wrote a boolean mask as 0 and
// the lowest number, which stands for -infinity.
TensorId softmax_input(Lowering& lowering,
                       const Node& node,
                       const TorchScores& torch,
                       bool boolean_mask) {
  if (!boolean_mask || torch.scores < 0) return input_of(lowering, node, 0);
  constexpr float kLow = -3e4f;  // above storable(lowest number) in 16 bits
  graph::PointwiseProgram masked;
  const int scores = masked.input(0), mask = masked.input(1);
  const int hides = masked.append(graph::PointwiseFunction::kLess, mask, masked.constant(kLow));
  const int hidden = masked.constant(-std::numeric_limits<float>::infinity());
  masked.append(graph::PointwiseFunction::kWhere,
                hides,
                hidden,
                masked.append(graph::PointwiseFunction::kAdd, scores, mask));
  return ops::pointwise(
      lowering.builder(),
      lowering.name_of(node) + ".masked",
      {lowering.layouts().plain(torch.scores), lowering.layouts().plain(torch.mask)},
      masked);
}

// Before opset 13, the softmax is over all axes from the given one on. In attention, a row that is
// hidden completely becomes 0 here: zeros for NaN after the softmax would have gradients of NaN.
void lower_softmax(Lowering& lowering, const Node& node) {
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const bool log = node.op == "LogSoftmax", over_all = node.opset < 13;
  const ZerosForNan zeros = log ? ZerosForNan{} : zeros_for_nan(lowering.readers(), node.output(0));
  const TorchScores torch = log ? TorchScores{} : torch_scores(lowering.readers(), node);
  const bool or_zero = zeros.test != nullptr || torch.scores >= 0;
  const graph::SoftmaxForm form = log       ? graph::SoftmaxForm::kLogarithm
                                  : or_zero ? graph::SoftmaxForm::kSharesOrZero
                                            : graph::SoftmaxForm::kShares;
  int output = node.output(0);
  if (zeros.test != nullptr) {
    output = zeros.choice->output(0);
    lowering.fusion().mark_fused(*zeros.test);
    lowering.fusion().mark_fused(*zeros.choice);
  }
  const Shape shape = shape_of(lowering.value(node.output(0)));
  const int rank = shape.rank();
  const int axis = axis_of(node.integer("axis", over_all ? 1 : -1), static_cast<size_t>(rank));
  if (!over_all && axis == 1 && lowering.layouts().is_channels_last(node.input(0)))
    return lowering.layouts().set(
        output,
        ops::softmax(builder, name, lowering.layouts().channels_last(node.input(0)), form),
        /*channels_last=*/true);
  TensorId x = softmax_input(lowering, node, torch, zeros.test != nullptr);
  if (over_all || axis == rank - 1) {
    int64_t columns = 1;
    for (int d = axis; d < rank; ++d) columns *= shape[d];
    const bool rows = axis != rank - 1;
    if (rows) x = ops::reshape(builder, name + ".rows", x, {shape.elements() / columns, columns});
    x = ops::softmax(builder, name, x, form);
    return lowering.layouts().set(output, shaped(builder, name + ".extents", x, shape));
  }
  std::vector<int> swapped = numbers_from<int>(static_cast<size_t>(rank));
  std::swap(swapped[static_cast<size_t>(axis)], swapped.back());
  x = ops::softmax(builder, name, ops::transpose(builder, name + ".last", x, swapped), form);
  lowering.layouts().set(output, ops::transpose(builder, name + ".back", x, swapped));
}

constexpr NodeType kNodes[] = {
    {"Softmax", rule_softmax, lower_softmax, evaluate_softmax},
    {"LogSoftmax", rule_softmax, lower_softmax, evaluate_softmax},
    {"Hardmax", rule_hardmax},
};

}  // namespace

std::span<const NodeType> softmax_nodes() { return kNodes; }

}  // namespace lockstep::onnx
