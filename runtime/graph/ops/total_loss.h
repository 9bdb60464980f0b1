#pragma once
// total_loss: the weighted sum of several losses of the same samples.
// Statistics: sum_i weight[i] * the i-th loss's sum; the rest is the first loss's. A loss of weight
// 0, which only the first may have, is not read into the sum. The prediction of the first loss is
// not read, but kept in memory for the metrics; it may be absent.
// In a training graph, each loss's gradient of its prediction is multiplied by the loss's weight.

#include <cstdint>
#include <vector>

#include "runtime/base/host_device.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

enum class TotalLossIn : InputIndex { kPrediction, kStatistics };  // statistics of each loss
enum class TotalLossOut : OutputIndex { kStatistics };

struct TotalLossAttributes {
  static constexpr int kMaxLosses = 8;
  std::vector<float> weights;  // by loss, above 0; the first is 1 or 0
};

namespace ops {

// Ends a training or evaluation graph with all losses that were appended to it; metrics belong to
// the first one. All losses have the same number of rows, and only the first may have parameters.
// There are as many weights as losses, at most kMaxLosses; the first weight is 1, or in evaluation
// 0, if the first loss is there for its metrics only.
void total_loss(GraphBuilder& builder, const std::vector<float>& weights);

}  // namespace ops

// A loss of the graph: its op, and the factor of its gradient.
struct LossRoot {
  size_t op;
  float weight;
};

// The losses of a graph that ends in a loss or in total_loss.
std::vector<LossRoot> loss_roots(const Graph& graph);

struct TotalLoss {
  int count = 0;
  const double* losses[TotalLossAttributes::kMaxLosses] = {};  // (4) each
  double weights[TotalLossAttributes::kMaxLosses] = {};
  double* statistics;  // (4)

  explicit TotalLoss(const OpCall& call)
      : statistics(call.output<double>(TotalLossOut::kStatistics)) {
    for (const float weight : call.attributes<TotalLossAttributes>().weights) {
      losses[count] = call.input<double>({TotalLossIn::kStatistics, static_cast<size_t>(count)});
      weights[count++] = static_cast<double>(weight);
    }
  }

  LOCKSTEP_HD void add() const {
    for (int k = 0; k < kStatisticCount; ++k) statistics[k] = losses[0][k];
    if (weights[0] == 0) statistics[kLossSum] = 0;
    for (int i = 1; i < count; ++i) statistics[kLossSum] += weights[i] * losses[i][kLossSum];
  }
};

}  // namespace lockstep::graph
