// Reverse-mode differentiation of a static graph.
//
// The forward ops are visited from last to first. When an op is visited, all ops that read its
// outputs have been visited, so all contributions to the gradients of its outputs are known: they
// are summed, and the op's backward rule (schema.h) appends ops that compute the gradients of its
// inputs. These become contributions to the gradients of the tensors that are its inputs.
//
// - The roots are the losses. A loss computes the gradient of its prediction in its forward op, so
//   it has no backward op. With total_loss, each of these gradients is multiplied by the loss's
//   weight.
// - Activations: contributions are tensors, added by explicit `add` ops in the order in which they
//   were made. Parameters: the first backward op overwrites the gradient and later ones add to it
//   (parameter_gradient() returns which), so no `add` is needed.
// - An op is skipped if no gradient reaches it. Ops with running statistics are visited anyway,
//   because their statistics follow the batch and not the chain rule.
// - A gradient is dropped if its tensor does not depend on a trained parameter (find_trainable), so
//   nothing is computed below the lowest trained layer.
// - In a recomputed block, the rule sees a copy of the op that reads recomputed tensors
//   (recompute.h).
//
// Invariant: ops are appended in a fixed order, so gradients are summed in the same order in every
// run.
#include "runtime/graph/autodiff.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/graph/fusion.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/total_loss.h"
#include "runtime/graph/recompute.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {
namespace {

// Running statistics follow the values of the forward pass; the chain rule does not apply to them.
bool learns(const Tensor& parameter) {
  return !parameter.frozen && parameter.running_momentum == 0;
}

std::vector<bool> find_trainable(const Graph& graph) {
  std::vector<bool> trainable(graph.tensors.size(), false);
  for (TensorId id : graph.parameters) trainable[static_cast<size_t>(id)] = learns(graph[id]);
  for (const Op& op : graph.ops) {
    bool any = false;
    for (TensorId id : op.inputs) any |= id != kNoTensor && trainable[static_cast<size_t>(id)];
    for (TensorId id : op.outputs) {
      if (id != kNoTensor) trainable[static_cast<size_t>(id)] = any && !graph[id].detached;
    }
  }
  return trainable;
}

bool has_running_statistics(const Graph& graph, const Op& op) {
  return std::any_of(op.inputs.begin(), op.inputs.end(), [&](TensorId id) {
    return id != kNoTensor && graph[id].running_momentum > 0;
  });
}

// The gradient of a loss's prediction, multiplied by the loss's weight.
TensorId weighted(GradientBuilder& builder, const LossRoot& root) {
  const Op& loss = builder.graph().ops[root.op];
  const TensorId gradient = loss.outputs[LossOut::kGradient];
  if (root.weight == 1) return gradient;
  PointwiseProgram program;
  program.append(PointwiseFunction::kMul, program.input(0), program.constant(root.weight));
  const TensorId scaled = builder.new_gradient(loss.inputs[LossIn::kPrediction]);
  builder.append(pointwise_op("weigh " + builder.graph()[gradient].name,
                              {{gradient, builder.graph().shape(gradient)}},
                              program,
                              scaled));
  return scaled;
}

}  // namespace

TensorId GradientBuilder::new_gradient(TensorId of) {
  Tensor gradient;
  gradient.name = "d_" + graph_[of].name;
  gradient.shape = graph_[of].shape;
  gradient.padded_columns = graph_[of].padded_columns;
  gradient.padded_rows = graph_[of].padded_rows;
  gradient.dtype = graph_[of].role == Role::kParameter ? DType::kF32 : graph_[of].dtype;
  return graph_.add(std::move(gradient));
}

TensorId GradientBuilder::new_copy(TensorId of) {
  Tensor copy = graph_[of];
  copy.name += " again";
  const TensorId id = graph_.add(std::move(copy));
  needs_gradient_.resize(graph_.tensors.size(), false);
  needs_gradient_.back() = needs_gradient(of);
  return id;
}

TensorId GradientBuilder::new_statistics(const std::string& name, const Shape& shape) {
  Tensor tensor;
  tensor.name = name;
  tensor.shape = shape;
  return graph_.add(std::move(tensor));
}

std::pair<TensorId, bool> GradientBuilder::parameter_gradient(TensorId parameter) {
  if (parameter == kNoTensor || graph_[parameter].frozen) return {kNoTensor, false};
  LOCKSTEP_CHECK(graph_[parameter].role == Role::kParameter);
  if (graph_[parameter].gradient != kNoTensor) return {graph_[parameter].gradient, true};
  const TensorId gradient = new_gradient(parameter);
  graph_[gradient].role = Role::kParameterGradient;
  graph_[parameter].gradient = gradient;
  return {gradient, false};
}

bool GradientBuilder::adds_few_rows(TensorId table, TensorId ids) const {
  constexpr int64_t kFew = 4;  // times as many rows as tokens
  const int64_t tokens = graph_.lanes * graph_.shape(ids).elements();
  return !graph_[table].frozen && graph_[table].gradient != kNoTensor && tokens > 0 &&
         kFew * tokens <= graph_.shape(table)[0];
}

void GradientBuilder::add_loss_gradients(Op& loss) {
  loss.outputs.push_back(new_gradient(loss.inputs[LossIn::kPrediction]));
  for (size_t k = 1; k < loss.inputs.size(); ++k) {
    const TensorId id = loss.inputs.at(k);
    if (id != kNoTensor && graph_[id].role == Role::kParameter)
      loss.outputs.push_back(parameter_gradient(id).first);  // none if it is frozen
  }
}

void differentiate(Graph& graph) {
  LOCKSTEP_CHECK(graph.purpose == Purpose::kTraining && graph.result != kNoTensor);
  GradientBuilder builder(graph, find_trainable(graph));
  graph.forward_ops = graph.ops.size();

  // Contributions to the gradient of each forward tensor, in the order in which the backward pass
  // makes them.
  std::vector<std::vector<TensorId>> contributions(graph.tensors.size());
  std::vector<bool> is_root(graph.ops.size(), false);
  is_root.back() = true;  // or total_loss, which has no gradient itself
  for (const LossRoot& root : loss_roots(graph)) {
    is_root[root.op] = true;
    builder.add_loss_gradients(graph.ops[root.op]);
    const TensorId prediction = graph.ops[root.op].inputs[LossIn::kPrediction];
    if (builder.needs_gradient(prediction))
      contributions[static_cast<size_t>(prediction)].push_back(weighted(builder, root));
  }
  const auto summed = [&](TensorId id) {
    if (id == kNoTensor) return kNoTensor;
    auto& parts = contributions[static_cast<size_t>(id)];
    while (parts.size() > 1) {
      const TensorId sum = builder.new_gradient(id);
      builder.append({OpKind::kAdd, "sum " + graph[sum].name, {parts[0], parts[1]}, {sum}, {}});
      parts.erase(parts.begin());
      parts[0] = sum;
    }
    return parts.empty() ? kNoTensor : parts[0];
  };

  Recomputation recomputation(builder);
  for (size_t i = graph.forward_ops; i-- > 0;) {
    if (is_root[i]) continue;
    const Op op = graph.ops[i];  // a copy: appending reallocates the vector
    const Op& rule_op = recomputation.enter(i, op);
    OpOutputs d_outputs;
    for (TensorId id : op.outputs) d_outputs.push_back(summed(id));
    const bool any = std::ranges::any_of(d_outputs, [](TensorId id) { return id != kNoTensor; });
    if (!any && !has_running_statistics(graph, op)) continue;
    const auto rule = schema_of(op.kind).backward;
    LOCKSTEP_CHECK(rule != nullptr, "no backward rule for {} ", name_of(op.kind));
    const std::vector<TensorId> d_inputs = rule(builder, rule_op, d_outputs);
    LOCKSTEP_CHECK(d_inputs.size() == op.inputs.size());
    for (size_t k = 0; k < d_inputs.size(); ++k) {
      const TensorId input = op.inputs.at(k);
      if (d_inputs[k] != kNoTensor && builder.needs_gradient(input))
        contributions[static_cast<size_t>(input)].push_back(d_inputs[k]);
    }
  }
  recomputation.drop_unused();
  fuse_activation_backward(graph);
  fuse_gradient_sums(graph);
  for (TensorId id : graph.parameters)
    LOCKSTEP_CHECK(graph[id].frozen || graph[id].gradient != kNoTensor,
                   "parameter {} is not used ",
                   graph[id].name);
}

}  // namespace lockstep::graph
