#pragma once
// Reverse-mode differentiation: appends the backward pass to a training graph that ends in a loss.

#include <utility>
#include <vector>

#include "runtime/graph/graph.h"

namespace lockstep {

// Appends backward ops in reverse order of the forward ops. The loss op gains outputs,
// the gradients of its first input and of its parameters. Every parameter that learns and that the loss
// depends on gets `gradient`; one used more than once has its later contributions accumulated into the
// first. A parameter that learns and that the loss does not depend on is a broken invariant. Frozen
// ones get none, and the backward pass ends where nothing that learns lies below, but for running
// statistics, which follow the batch everywhere.
void differentiate(Graph& graph);

// What a backward rule may do.
class GradientBuilder {
 public:
  // needs_gradient: of each tensor of the graph, whether anything trainable lies behind it.
  GradientBuilder(Graph& graph, std::vector<bool> needs_gradient)
      : graph_(graph), needs_gradient_(std::move(needs_gradient)) {}

  const Graph& graph() const { return graph_; }
  // Whether anything trainable lies behind this tensor.
  bool needs_gradient(TensorId tensor) const {
    return needs_gradient_[static_cast<size_t>(tensor)];
  }
  // A new tensor "d_<name>" of the shape and type of `of`; f32 for parameters.
  TensorId new_gradient(TensorId of);
  // A new activation that holds again what `of` held in the forward pass.
  TensorId new_copy(TensorId of);
  // A new f32 activation.
  TensorId new_statistics(const std::string& name, const Shape& shape);
  // The gradient tensor of a parameter, and whether this contribution must accumulate. {kNoTensor,
  // false} for kNoTensor and for a frozen one.
  std::pair<TensorId, bool> parameter_gradient(TensorId parameter);
  // A loss gains outputs: the gradients of its first input and of its parameters, which it
  // overwrites; none of a frozen one.
  void add_loss_gradients(Op& loss);
  void append(Op op) { graph_.ops.push_back(std::move(op)); }

 private:
  friend class Recomputation;
  Graph& graph_;
  std::vector<bool> needs_gradient_;
};

}  // namespace lockstep
