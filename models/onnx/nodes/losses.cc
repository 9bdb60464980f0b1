// SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss. With s the scores of element i for its
// classes (axis 1), l its label and w the weights of classes:
//   loss[i] = -w[l] log_softmax(s)[l], or -w[l] s[l] for NegativeLogLikelihoodLoss;
//   0 if l is ignore_index.
// "mean" is the sum over all elements, divided by that of the weights of those that count. Both
// "mean" and "sum" combine the samples of a batch, so a network may only have them on values that
// are not of samples; see samples/mixing.h.
#include "models/onnx/nodes/losses.h"

#include <string>
#include <vector>

#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "runtime/base/text.h"
#include "runtime/graph/ops/gather.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/reduce.h"
#include "runtime/graph/ops/softmax.h"

namespace lockstep::onnx {
namespace {

using F = graph::PointwiseFunction;

enum class Reduction { kNone, kMean, kSum };

Reduction reduction_of(const Node& node) {
  const std::string name = node.text("reduction", "mean");
  if (name == "none") return Reduction::kNone;
  if (name == "mean") return Reduction::kMean;
  if (name == "sum") return Reduction::kSum;
  refuse(node, "reduction: value is {}; allowed: none, mean, sum", in_quotes(name));
}

std::vector<Form> rule_loss(const NodeView& node) {
  node.require_inputs(2, 3);
  node.require_floating(0);
  node.require_integers(1);
  node.require_rank(0, 2, 8);
  Extents each = node.extents(0);
  each.erase(each.begin() + 1);
  node.require_extents(1, each);
  if (node.has(2)) node.require_extents(2, {node.extents(0)[1]});
  if (reduction_of(node.node()) != Reduction::kNone) each.clear();
  const Form loss{node.type(0), each};
  if (node.node().op == "NegativeLogLikelihoodLoss") return {loss};
  return {loss, node.form(0)};
}

// Classes are the last axis here, of extent 1 where one is picked.
class LossNode {
 public:
  LossNode(Lowering& lowering, const Node& node)
      : lowering_(lowering), builder_(lowering.builder()), node_(node) {}

  void lower() {
    const size_t rank = lowering_.value(node_.input(0)).extents.size();
    TensorId scores = lowering_.layouts().get(node_.input(0), /*last=*/rank > 2);
    if (node_.op == "SoftmaxCrossEntropyLoss")
      scores = ops::softmax(builder_, name(".log_softmax"), scores, graph::SoftmaxForm::kLogarithm);
    if (node_.output(1) >= 0) lowering_.layouts().set(node_.output(1), scores, rank > 2);
    labels_ = input_of(lowering_, node_, 1);
    column_ = builder_.shape(labels_);
    column_.append(1);
    indices_ = ops::reshape(builder_, name(".indices"), labels_, column_);
    const TensorId picked = ops::gather_elements(
        builder_, name(".picked"), scores, indices_, static_cast<int>(rank) - 1);
    if (node_.input(2) >= 0)
      weights_ = ops::reshape(
          builder_,
          name(".weight_columns"),
          ops::gather(builder_, name(".weights"), input_of(lowering_, node_, 2), labels_, 0),
          column_);
    reduce(each(".each", {picked, indices_}, [](auto& program) {
      return program.append(F::kNeg, program.input(0));
    }));
  }

 private:
  std::string name(const char* part) const { return lowering_.name_of(node_) + part; }

  // f, times the weight, of each element that counts; inputs[1] are the labels.
  template <typename Function>
  TensorId each(const char* part, std::vector<TensorId> inputs, Function f) {
    graph::PointwiseProgram program;
    int value = f(program);
    if (weights_ != kNoTensor) {
      value = program.append(F::kMul, value, program.input(static_cast<int>(inputs.size())));
      inputs.push_back(weights_);
    }
    if (node_.has("ignore_index")) {
      const int ignored =
          program.append(F::kEqual,
                         program.input(1),
                         program.constant(static_cast<float>(node_.integer("ignore_index", 0))));
      program.append(F::kWhere, ignored, program.constant(0), value);
    }
    return ops::pointwise(builder_, name(part), inputs, program);
  }

  void reduce(TensorId losses) {
    const Reduction reduction = reduction_of(node_);
    if (reduction == Reduction::kNone) return set_reshaped(lowering_, node_, losses);
    const TensorId sum = total(".sum", losses);
    if (reduction == Reduction::kSum) return set_output(lowering_, node_, sum);
    const TensorId counts = each(".counts", {indices_, indices_}, [](auto& program) {
      return program.append(F::kEqual, program.input(0), program.input(1));
    });
    graph::PointwiseProgram divide;
    divide.append(F::kDiv, divide.input(0), divide.input(1));
    set_output(lowering_,
               node_,
               ops::pointwise(builder_, name(".mean"), {sum, total(".count", counts)}, divide));
  }

  TensorId total(const char* part, TensorId x) {
    std::vector<int> axes;
    for (int d = 0; d < builder_.shape(x).rank(); ++d) axes.push_back(d);
    return ops::reduce(builder_, name(part), x, graph::ReduceKind::kSum, axes, false);
  }

  Lowering& lowering_;
  graph::GraphBuilder& builder_;
  const Node& node_;
  TensorId labels_ = kNoTensor;   // (N, ...)
  TensorId indices_ = kNoTensor;  // (N, ..., 1), the labels
  TensorId weights_ = kNoTensor;  // (N, ..., 1), or kNoTensor
  Shape column_;                  // (N, ..., 1)
};

void lower_loss(Lowering& lowering, const Node& node) { LossNode(lowering, node).lower(); }

constexpr NodeType kNodes[] = {
    {"SoftmaxCrossEntropyLoss", rule_loss, lower_loss},
    {"NegativeLogLikelihoodLoss", rule_loss, lower_loss},
};

}  // namespace

std::span<const NodeType> loss_nodes() { return kNodes; }

bool is_loss_node(const Node& node) {
  return is_op(&node, "SoftmaxCrossEntropyLoss") || is_op(&node, "NegativeLogLikelihoodLoss");
}

bool combines_samples(const Node& loss) { return reduction_of(loss) != Reduction::kNone; }

}  // namespace lockstep::onnx
