// Catches: a weight given to another loss, counts that are summed or taken of another loss.
#include "runtime/graph/ops/total_loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void reference(const graph::OpCall& call) {
  const auto& weights = call.attributes<graph::TotalLossAttributes>().weights;
  double* total = call.output<double>(graph::TotalLossOut::kStatistics);
  for (int k = 0; k < graph::kStatisticCount; ++k)
    total[k] = call.input<double>(graph::TotalLossIn::kStatistics)[k];
  if (weights[0] == 0) total[graph::kLossSum] = 0;
  for (size_t i = 1; i < weights.size(); ++i)
    total[graph::kLossSum] +=
        static_cast<double>(weights[i]) *
        call.input<double>({graph::TotalLossIn::kStatistics, i})[graph::kLossSum];
}

constexpr exec::Implementation kReference[] = {{graph::OpKind::kTotalLoss, "loop", reference}};

TEST(TotalLossTest, MatchesTheReferenceOnAllDevices) {
  for (const std::vector<float>& weights :
       {std::vector<float>{1}, {1, 0.3f}, {0, 1}, {1, 0.25f, 4, 1, 0.5f, 2, 3, 0.125f}}) {
    check_on_all_devices(
        {.name = "total_loss of " + std::to_string(weights.size()),
         .build =
             [=](graph::GraphBuilder& builder) {
               std::vector<TensorId> inputs = {kNoTensor};
               for (size_t i = 0; i < weights.size(); ++i)
                 inputs.push_back(builder.input(
                     "loss" + std::to_string(i), {graph::kStatisticCount}, DType::kF64));
               builder.append_result(
                   graph::OpKind::kTotalLoss, inputs, graph::TotalLossAttributes{weights});
             },
         .reference = kReference,
         .cpu = cpu::kCpuTotalLoss,
         .cuda = cuda::kCudaTotalLoss,
         .tolerance =
             [](const graph::OpCall& expected, graph::OutputName, int64_t i) {
               return Tolerance{
                   0, std::abs(expected.output<double>(graph::TotalLossOut::kStatistics)[i])};
             },
         .gradients = 0});
  }
}

}  // namespace
}  // namespace lockstep::test
