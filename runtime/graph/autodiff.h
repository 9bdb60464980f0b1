#pragma once
// Reverse-mode differentiation: appends the backward pass to a training graph that ends in a loss.
// See autodiff.cc.

#include <utility>
#include <vector>

#include "runtime/graph/graph.h"

namespace lockstep::graph {

// Appends backward ops in reverse order of the forward ops. The loss op gains outputs: the
// gradients of its prediction and of its parameters.
// Every trained parameter gets a `gradient`. If it is used more than once, later contributions are
// accumulated into the first. A trained parameter on which the loss does not depend is a broken
// invariant.
// Frozen parameters get no gradient, and the backward pass ends where nothing below is trained.
// Exception: running statistics always follow the batch.
void differentiate(Graph& graph);

// What a backward rule may do.
class GradientBuilder {
 public:
  // needs_gradient: for each tensor of the graph, whether it depends on a trained parameter.
  GradientBuilder(Graph& graph, std::vector<bool> needs_gradient)
      : graph_(graph), needs_gradient_(std::move(needs_gradient)) {}

  const Graph& graph() const { return graph_; }
  // Whether the tensor depends on a trained parameter.
  bool needs_gradient(TensorId tensor) const {
    return needs_gradient_[static_cast<size_t>(tensor)];
  }
  // A new tensor "d_<name>" with the shape and type of `of`; f32 for parameters.
  TensorId new_gradient(TensorId of);
  // A new activation that holds the recomputed value of `of`.
  TensorId new_copy(TensorId of);
  // A new f32 activation.
  TensorId new_statistics(const std::string& name, const Shape& shape);
  // The gradient tensor of a parameter, and whether this contribution must be added to it.
  // {kNoTensor, false} for kNoTensor and for a frozen parameter.
  std::pair<TensorId, bool> parameter_gradient(TensorId parameter);
  // Whether the rows of a table that the tokens `ids` read are few beside all of its rows, and the
  // table has another gradient besides theirs.
  bool adds_few_rows(TensorId table, TensorId ids) const;
  // Adds outputs to a loss op: the gradients of its prediction and of its parameters, except
  // frozen ones. The op overwrites these gradients.
  void add_loss_gradients(Op& loss);
  void append(Op op) { graph_.ops.push_back(std::move(op)); }

 private:
  friend class Recomputation;
  Graph& graph_;
  std::vector<bool> needs_gradient_;
};

}  // namespace lockstep::graph
