#include "runtime/graph/ops/total_loss.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {
namespace {

// Index of the op that computes the statistics of a loss.
size_t loss_of(const Graph& graph, TensorId statistics) {
  const auto found = std::ranges::find_if(
      graph.ops, [&](const Op& op) { return std::ranges::count(op.outputs, statistics) > 0; });
  LOCKSTEP_CHECK(found != graph.ops.end());
  return static_cast<size_t>(found - graph.ops.begin());
}

}  // namespace

void ops::total_loss(GraphBuilder& builder, const std::vector<float>& weights) {
  OpInputs inputs = {kNoTensor};
  std::vector<const Op*> losses;
  for (const TensorId statistics : builder.losses()) {
    losses.push_back(&builder.graph().ops[loss_of(builder.graph(), statistics)]);
    inputs.push_back(statistics);
    builder[statistics].role = Role::kActivation;
  }
  LOCKSTEP_CHECK(!losses.empty() && losses.size() == weights.size() &&
                 (weights[0] == 1 || (weights[0] == 0 && !builder.training())) &&
                 weights.size() <= TotalLossAttributes::kMaxLosses);
  for (const Op* loss : losses) {
    LOCKSTEP_CHECK(loss == losses[0] || loss->inputs.size() <= 2);
    LOCKSTEP_CHECK(builder.shape(loss->inputs[LossIn::kPrediction]).rows() ==
                   builder.shape(losses[0]->inputs[LossIn::kPrediction]).rows());
  }
  if (builder.graph().purpose == Purpose::kEvaluation && losses[0]->inputs.size() == 2)
    inputs[TotalLossIn::kPrediction] = losses[0]->inputs[LossIn::kPrediction];
  builder.append_result(OpKind::kTotalLoss, std::move(inputs), TotalLossAttributes{weights});
}

std::vector<LossRoot> loss_roots(const Graph& graph) {
  const size_t last = graph.ops.size() - 1;
  if (graph.ops[last].kind != OpKind::kTotalLoss) return {{last, 1}};
  std::vector<LossRoot> roots;
  const std::vector<float>& weights = graph.ops[last].as<TotalLossAttributes>().weights;
  for (size_t i = 0; i < weights.size(); ++i)
    roots.push_back(
        {loss_of(graph, graph.ops[last].inputs[{TotalLossIn::kStatistics, i}]), weights[i]});
  return roots;
}

namespace {

int64_t total_loss_flops(const Graph& /*graph*/, const Op& op) {
  return 2 * static_cast<int64_t>(op.inputs.size());
}

}  // namespace

const OpSchema kTotalLossSchema = {nullptr, total_loss_flops, {}};

}  // namespace lockstep::graph
