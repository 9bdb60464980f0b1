#pragma once
// total_loss: one loss of several that judge the same samples, each with a weight.
//   inputs  prediction of the first loss, which is kept until then and not read here, or none;
//           statistics (4) f64 of each loss
//   outputs statistics (4) f64: sum_i weight[i] * the i-th loss's sum; all else is the first one's
// In a training graph the gradient that a loss leaves of its prediction is multiplied by its weight.

#include <cstdint>
#include <vector>

#include "runtime/base/host_device.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct TotalLossAttributes {
  static constexpr int kMostLosses = 8;
  std::vector<float> weights;  // by loss, above 0; the first is 1
};

namespace ops {

// Ends a training or evaluation graph in all losses that have been appended to it, of which the
// first is what metrics are of. The same number of rows each, and none but the first with
// parameters. As many weights as losses, at most kMostLosses, of which the first is 1.
void total_loss(GraphBuilder& builder, const std::vector<float>& weights);

}  // namespace ops

// A loss of the graph: its op, and what its gradient is multiplied by.
struct LossRoot {
  size_t op;
  float weight;
};

// Of a graph that ends in a loss or in total_loss.
std::vector<LossRoot> loss_roots(const Graph& graph);

struct TotalLoss {
  int count = 0;
  const double* losses[TotalLossAttributes::kMostLosses] = {};  // (4) each
  double weights[TotalLossAttributes::kMostLosses] = {};
  double* statistics = nullptr;  // (4)

  static TotalLoss of(const OpCall& op) {
    TotalLoss total;
    for (const float weight : op.attributes<TotalLossAttributes>().weights) {
      total.losses[total.count] = op.input<double>(total.count + 1);
      total.weights[total.count++] = static_cast<double>(weight);
    }
    total.statistics = op.output<double>(0);
    return total;
  }

  LOCKSTEP_HD void add() const {
    for (int k = 0; k < kStatisticCount; ++k) statistics[k] = losses[0][k];
    for (int i = 1; i < count; ++i) statistics[kLossSum] += weights[i] * losses[i][kLossSum];
  }
};

}  // namespace lockstep
