#include "runtime/graph/gradient_order.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/linear.h"

namespace lockstep::graph {
namespace {

using In = LinearBackwardIn;
using Out = LinearBackwardOut;

int64_t trained_elements(const Graph& graph) {
  int64_t elements = 0;
  for (const TensorId id : graph.parameters)
    if (graph[id].gradient != kNoTensor) elements += graph.shape(id).elements();
  return elements;
}

bool completes_large_table(const Graph& graph, const Op& op, int64_t trained) {
  constexpr int64_t kShare = 16;
  if (op.kind != OpKind::kEmbeddingBackward) return false;
  const TensorId d_token = op.outputs[EmbeddingBackwardOut::kDToken];
  return d_token != kNoTensor && kShare * graph.shape(d_token).elements() >= trained;
}

// Whether the op has both halves, and writes the gradients that it computes of weights.
bool can_be_split(const Op& op) {
  if (op.kind != OpKind::kLinearBackward) return false;
  const auto& attributes = op.as<LinearBackwardAttributes>();
  return op.outputs[Out::kDX] != kNoTensor && op.outputs[Out::kDWeight] != kNoTensor &&
         !attributes.accumulate_weight && !attributes.accumulate_bias;
}

// Takes the gradients of the weights away from the op.
Op take_weights(Op& op) {
  Op weights = op;
  weights.inputs[In::kSaved] = kNoTensor;
  weights.outputs[Out::kDX] = kNoTensor;
  weights.attributes = LinearBackwardAttributes{};
  op.inputs[In::kX] = kNoTensor;
  op.outputs[Out::kDWeight] = op.outputs[Out::kDBias] = kNoTensor;
  return weights;
}

}  // namespace

void postpone_weight_gradients(Graph& graph) {
  constexpr size_t kLayers = 4;  // of a block
  const int64_t trained = trained_elements(graph);
  const auto table = std::find_if(graph.ops.rbegin(), graph.ops.rend(), [&](const Op& op) {
    return completes_large_table(graph, op, trained);
  });
  std::vector<Op> postponed;
  for (auto op = table; op != graph.ops.rend() && postponed.size() < kLayers; ++op)
    if (can_be_split(*op)) postponed.push_back(take_weights(*op));
  std::move(postponed.rbegin(), postponed.rend(), std::back_inserter(graph.ops));
}

}  // namespace lockstep::graph
