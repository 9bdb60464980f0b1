// Catches: a wrong gradient term, variance by cancellation, the residual addition or its gradient
// left out, a mask of ReLU that differs between the passes, rows or channels lost at the borders of
// parts, warps or vectors, running statistics of the wrong estimate, statistics of this lane alone
// where all lanes' are wanted.
#include "runtime/graph/ops/batch_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "tests/ops/batch_norm_cases.h"

namespace lockstep::test {
namespace {

// With and without delta and ReLU.
void check_all_kinds(BatchNormCase at) {
  for (const bool delta : {false, true}) {
    for (const bool relu : {false, true}) {
      at.delta = delta;
      at.relu = relu;
      check_on_all_devices(batch_norm(at));
    }
  }
}

TEST(BatchNormTest, ReferenceMatchesFiniteDifferences) {
  for (const bool delta : {false, true}) {
    for (const bool relu : {false, true})
      check_gradient_of_reference(batch_norm({5, 3, delta, relu}));
  }
}

TEST(BatchNormTest, MatchesTheReferenceOnAllDevices) {
  for (const auto& [rows, channels] : {std::pair<int64_t, int64_t>{2, 1},
                                       {7, 5},
                                       {16, 16},
                                       {37, 24},
                                       {50, 72},
                                       {129, 64},
                                       {130, 67}})
    check_all_kinds({rows, channels});
  check_on_all_devices(batch_norm({5, 264, false, true}));  // more than one tile of channels
}

TEST(BatchNormTest, SumsLoseNoRowsAtTheBordersOfParts) {
  check_on_all_devices(batch_norm({4100, 3, true, true}));
  check_on_all_devices(batch_norm({4500, 8, true, true}));
}

TEST(BatchNormTest, VarianceDoesNotCancel) {
  // A mean ten thousand deviations away: E[x^2] - E[x]^2 in floats would be noise.
  for (const double centre : {1000, 4096, 10000})
    check_on_all_devices(batch_norm({600, 17, false, false, centre}));
}

TEST(BatchNormTest, ConstantChannelsAndSingleRowsHaveNoVariance) {
  for (const bool relu : {false, true}) {
    OpTest test = batch_norm({64, 4, false, relu});
    test.tolerance = [](const graph::OpCall& expected, graph::OutputName output, int64_t i) {
      return expected.kind() == graph::OpKind::kBatchNorm
                 ? Tolerance{0, 0}
                 : batch_norm_tolerance(expected, output, i);
    };
    test.value = [](const std::string& tensor, int64_t i) {
      return tensor == "x" ? 0.1 : batch_norm_value({64, 4}, tensor, i);
    };
    check_on_all_devices(test);
    test.build = batch_norm({1, 4, false, relu}).build;
    check_on_all_devices(test);
  }
}

TEST(BatchNormTest, NotANumberIsNotHidden) {
  OpTest test = batch_norm({20, 3, false, true});
  test.value = [](const std::string& tensor, int64_t i) {
    return tensor == "x" && i == 7 ? std::nan("") : batch_norm_value({20, 3}, tensor, i);
  };
  check_on_all_devices(test);
  EXPECT_TRUE(std::isnan(first_output_of_reference(test)[4]));
  EXPECT_FALSE(std::isnan(first_output_of_reference(test)[3]));
}

TEST(BatchNormTest, EvaluatesWithTheRunningStatistics) {
  for (const int64_t channels : {5, 16, 67}) {
    for (const bool delta : {false, true}) {
      OpTest test = batch_norm({9, channels, delta, !delta});
      test.gradients = 0;
      check_on_all_devices(test);
    }
  }
}

// A running variance beyond FP16's range is infinity as it is stored; y is to follow x even so.
TEST(BatchNormTest, EvaluatesWithStatisticsBeyondTheRange) {
  for (const int64_t channels : {5, 16}) {
    OpTest test = batch_norm({1, channels, false, false});
    test.gradients = 0;
    test.value = [](const std::string& tensor, int64_t i) {
      if (tensor == "x") return 500.0;
      if (tensor == "running_mean") return -12.0;
      if (tensor == "running_variance") return i == 1 ? std::nan("") : 262144.0;
      return tensor == "gamma" ? 1.0 : 0.5;
    };
    check_on_all_devices(test);
    EXPECT_TRUE(std::isnan(first_output_of_reference(test)[1])) << "NaN must not be hidden";
  }
}

// The mean is copied; the variance is multiplied by a rounded factor.
TEST(BatchNormTest, RunningStatisticsFollowWithoutABackwardPass) {
  for (const int64_t rows : {1, 2, 37}) {
    for (const int64_t channels : {1, 5, 33, 300}) {
      check_on_all_devices(
          {.name = "batch_norm_running of " + std::to_string(channels),
           .build =
               [=](graph::GraphBuilder& builder) {
                 const Shape shape = {channels};
                 const TensorId mean = builder.statistics_tensor("mean", shape),
                                variance = builder.statistics_tensor("variance", shape),
                                d_mean = builder.statistics_tensor("d_mean", shape),
                                d_variance = builder.statistics_tensor("d_variance", shape);
                 builder.append({graph::OpKind::kBatchNormRunning,
                                 "running",
                                 {mean, variance},
                                 {d_mean, d_variance},
                                 graph::BatchNormRunningAttributes{rows}});
                 builder.keep(d_mean);
               },
           .reference = kBatchNormReference,
           .cpu = cpu::kCpuBatchNorm,
           .cuda = cuda::kCudaBatchNorm,
           .tolerance =
               [](const graph::OpCall& expected, graph::OutputName output, int64_t i) {
                 const graph::BatchNormRunning<double> op{expected};
                 return Tolerance{output == graph::BatchNormRunningOut::kDRunningMean
                                      ? 0
                                      : 4 * std::abs(op.d_running_variance[i]),
                                  0};
               },
           .gradients = 0});
    }
  }
}

TEST(BatchNormTest, OpsOfSynchronisedNormsMatchTheReferenceOnAllDevices) {
  for (const auto& [lanes, rows, channels] :
       {std::tuple{3, 37, 5}, {3, 37, 16}, {3, 37, 33}, {5, 2, 67}})
    check_all_kinds({rows, channels, false, false, 0, lanes});
  for (const bool sum : {false, true})  // several parts
    check_on_all_devices(batch_norm({1100, 16, sum, sum, 0, 2}));
  check_on_all_devices(batch_norm({2, 300, false, true, 0, 5}));  // more channels than threads
}

}  // namespace
}  // namespace lockstep::test
