// Catches: a wrong gradient term, variance by cancellation, the residual addition or its gradient
// left out, a mask of ReLU that differs between the passes, bits of it in another order, a sum of
// two gradients that is not rounded as an add rounds it, or read after d_delta lies over it, rows or channels lost at the borders of
// parts, warps or vectors, running statistics of the wrong estimate, statistics of this lane alone
// where all lanes' are wanted.
#include "runtime/graph/ops/batch_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "runtime/base/rng.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/fibers/host_stream.h"
#include "tests/fibers/order.h"
#include "tests/ops/op_test.h"
#include "tests/reference/batch_norm.h"
#include "tests/reference/kernel_test.h"

namespace lockstep::test {
namespace {

using Inputs = graph::BatchNormGradientInputs<double>;

template <typename Op, void (*kRun)(const Op&)>
void run(const graph::OpCall& call) {
  kRun(Op{call});
}

void running(const graph::OpCall& call) {
  const graph::BatchNormRunning<double> op{call};
  const auto rows = static_cast<double>(op.rows);
  for (int64_t c = 0; c < op.channels; ++c) {
    op.d_running_mean[c] = op.mean[c];
    op.d_running_variance[c] = op.rows > 1 ? op.variance[c] * rows / (rows - 1) : op.variance[c];
  }
}

// The lanes are gathered by the executor: what it would write is an input here.
constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kBatchNorm, "double", run<graph::BatchNormForward<double>, batch_norm_forward>},
    {graph::OpKind::kBatchNormBackward,
     "double",
     run<graph::BatchNormBackward<double>, batch_norm_backward>},
    {graph::OpKind::kBatchStatistics,
     "double",
     run<graph::BatchStatistics<double>, batch_statistics>},
    {graph::OpKind::kBatchNormSums, "double", run<graph::BatchNormSums<double>, batch_norm_sums>},
    {graph::OpKind::kBatchNormRunning, "double", running},
    {graph::OpKind::kBatchNormInputGradient,
     "double",
     run<graph::BatchNormInputGradient<double>, batch_norm_input_gradient>},
};

// ---- What floats may be off by ----

// Parts are summed in float, from distances below 4: a part's error is some units of that.
Tolerance of_mean(double mean) { return {8 + std::abs(mean), 0}; }
// Parts' means may be rounded before they meet, and lie some part of a deviation apart.
Tolerance of_variance(double mean, double variance) {
  return {64 * (variance + kEps) + std::abs(mean) * std::sqrt(variance) / 8, 0};
}

// The mean's last bits move every y by gamma rstd of them, the variance's by xhat.
Tolerance of_y(const graph::BatchNormForward<double>& op, int64_t i) {
  const int64_t c = i % op.channels;
  const bool training = op.mean != nullptr;
  const double mean = training ? op.mean[c] : stored(op.running_mean[c]);
  const double variance = training ? op.variance[c] : stored(op.running_variance[c]);
  const double rstd = rstd_of(variance, op.epsilon), xhat = std::abs(op.x[i] - mean) * rstd;
  const double of_statistics = training ? 2 * (8 + std::abs(mean)) * rstd + 48 * xhat : 0;
  return {8 * (2 + xhat) + of_statistics, std::abs(op.y[i])};
}

// Where the activation's input is too near to zero, both answers are right. What a channel's sum of
// |d_y| has of such elements.
double doubtful(const Inputs& in, int64_t c) {
  double sum = 0;
  if (!in.relu || in.y != nullptr || in.mask != nullptr) return sum;
  for (int64_t i = c; i < in.rows * in.channels; i += in.channels) {
    const double error = 8 * kEps * (2 + std::abs(xhat_at(in, i)));
    if (std::abs(activated_at(in, i)) < error) sum += std::abs(d_y_at(in, i));
  }
  return sum;
}

// No gradient is above this.
double largest(const Inputs& in) { return in.d_y2 != nullptr ? 2 : 1; }

// Sums over rows of gradients and of g xhat are some `rows` times the largest at most.
Tolerance of_sum(const Inputs& in, int64_t c) {
  return {4 * largest(in) * static_cast<double>(in.rows) + 4 * doubtful(in, c) / kEps, 0};
}

Tolerance of_d_x(const Inputs& in, const double* d_x, int64_t i) {
  const int64_t c = i % in.channels;
  const double rstd = rstd_at(in, c);
  return {rstd * (16 * largest(in) * (1 + std::abs(xhat_at(in, i))) + 4 * doubtful(in, c) / kEps),
          std::abs(d_x[i])};
}

// A bit is doubtful if what the activation is given is too near to zero.
Tolerance of_mask(const graph::BatchNormForward<double>& op, int64_t byte) {
  double doubtful_bits = 0;
  for (int64_t bit = 0; bit < 8; ++bit) {
    const int64_t i = 8 * byte + bit;
    if (std::abs(pre_activation_at(op, i)) < kEps * of_y(op, i).floats)
      doubtful_bits += static_cast<double>(1 << bit);
  }
  return {doubtful_bits / kEps, 0};
}

Tolerance of_parameter(const Inputs& in, graph::OutputName output, int64_t c) {
  if (output == graph::BatchNormBackwardOut::kDGamma ||
      output == graph::BatchNormBackwardOut::kDBeta)
    return of_sum(in, c);
  if (output == graph::BatchNormBackwardOut::kDRunningVariance) return {8 * in.variance[c], 0};
  return {0, 0};  // d_delta and d_running_mean, which are copies
}

Tolerance tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t i) {
  switch (expected.kind()) {
    case graph::OpKind::kBatchNorm: {
      const graph::BatchNormForward<double> op{expected};
      if (output == graph::BatchNormOut::kY) return of_y(op, i);
      if (output == graph::BatchNormOut::kMask) return of_mask(op, i);
      return output == graph::BatchNormOut::kMean ? of_mean(op.mean[i])
                                                  : of_variance(op.mean[i], op.variance[i]);
    }
    case graph::OpKind::kBatchStatistics: {
      const graph::BatchStatistics<double> op{expected};
      return i < op.channels ? of_mean(op.statistics[i])
                             : of_variance(op.statistics[i - op.channels], op.statistics[i]);
    }
    case graph::OpKind::kBatchNormSums: {
      const graph::BatchNormSums<double> op{expected};
      return output == graph::BatchNormBackwardOut::kSums ? of_sum(op.in, i % op.in.channels)
                                                          : of_parameter(op.in, output, i);
    }
    case graph::OpKind::kBatchNormInputGradient: {
      const graph::BatchNormInputGradient<double> op{expected};
      return of_d_x(op.in, op.d_x, i);
    }
    default: {
      const graph::BatchNormBackward<double> op{expected};
      return output == graph::BatchNormBackwardOut::kDX ? of_d_x(op.in, op.d_x, i)
                                                        : of_parameter(op.in, output, i);
    }
  }
}

// ---- The cases ----

struct Case {
  int64_t rows, channels;
  bool delta = false, relu = false;
  double centre = 0;  // of x
  int lanes = 1;
};

double uniform(const std::string& tensor, int64_t i, double low, double high) {
  const RngStream stream{.seed = std::hash<std::string>()(tensor), .purpose = kRngSynthetic};
  return low + (high - low) * uniform_from_word(philox_word(stream, static_cast<uint64_t>(i)));
}

double value_of(const Case& at, const std::string& tensor, int64_t i) {
  if (tensor == "x") return uniform(tensor, i, at.centre - 2, at.centre + 1);
  if (tensor == "gamma") return uniform(tensor, i, 0.5, 1.5);
  const bool variance =
      tensor == "running_variance" || (tensor == "norm.lanes" && i / at.channels % 2 == 1);
  return variance ? uniform(tensor, i, 0.5, 2) : uniform(tensor, i, -1, 1);
}

OpTest batch_norm(const Case& at) {
  return {.name = "batch_norm (" + std::to_string(at.rows) + ", " + std::to_string(at.channels) +
                  (at.delta ? ") of a sum" : ")") + (at.relu ? ", relu" : "") + ", " +
                  std::to_string(at.lanes) + " lanes",
          .build =
              [=](graph::GraphBuilder& builder) {
                const Shape shape = {at.rows, at.channels}, channels = {at.channels};
                const TensorId x = builder.activation_tensor("x", shape);
                const TensorId delta =
                    at.delta ? builder.activation_tensor("delta", shape) : kNoTensor;
                const ops::BatchNormParameters parameters = {
                    builder.parameter("gamma", channels, {}, false),
                    builder.parameter("beta", channels, {}, false),
                    builder.running_statistic("running_mean", channels, 0, 0.1f),
                    builder.running_statistic("running_variance", channels, 1, 0.1f)};
                graph::BatchNormAttributes attributes;
                attributes.activation = at.relu ? Activation::kRelu : Activation::kNone;
                attributes.synchronised = at.lanes > 1;
                ops::batch_norm(builder, "norm", x, delta, parameters, attributes);
              },
          .reference = kReference,
          .cpu = cpu::kCpuBatchNorm,
          .cuda = cuda::kCudaBatchNorm,
          .tolerance = tolerance,
          .lanes = at.lanes,
          .value = [=](const std::string& tensor, int64_t i) { return value_of(at, tensor, i); }};
}

// With and without delta and ReLU.
void check_all_kinds(Case at) {
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
                                       {300, 67}})
    check_all_kinds({rows, channels});
  check_on_all_devices(batch_norm({5, 264, false, true}));  // more than one tile of channels
}

// ---- Gradients of two readers, and masks ----

// A backward op by itself; what it reads is given.
struct BackwardCase {
  int64_t rows, channels;
  bool two_gradients, relu, d_delta, y, mask;  // what there is
  graph::OpKind kind = graph::OpKind::kBatchNormBackward;
};

OpTest backward(const BackwardCase& at) {
  const bool sums = at.kind == graph::OpKind::kBatchNormSums;
  OpTest test = batch_norm({at.rows, at.channels, at.d_delta, at.relu});
  test.name = std::string(graph::name_of(at.kind)) + " (" + std::to_string(at.rows) + ", " +
              std::to_string(at.channels) + ")" + (at.two_gradients ? ", two gradients" : "") +
              (at.relu ? ", relu" : "") + (at.d_delta ? ", d_delta" : "") + (at.y ? ", y" : "") +
              (at.mask ? ", mask" : "");
  test.gradients = 0;
  test.build = [=](graph::GraphBuilder& builder) {
    const Shape shape = {at.rows, at.channels}, channels = {at.channels};
    const auto activation = [&](const std::string& name, bool there = true) {
      return there ? builder.activation_tensor(name, shape) : kNoTensor;
    };
    const auto statistics = [&](const std::string& name) {
      return builder.statistics_tensor(name, channels);
    };
    const TensorId mask =
        at.mask ? builder.tensor(
                      "mask", {at.rows, at.channels / 8}, DType::kU8, graph::Role::kActivation)
                : kNoTensor;
    const TensorId first =
        sums ? builder.statistics_tensor("sums", {2, at.channels}) : activation("d_x");
    builder.append(
        {at.kind,
         "norm",
         {activation("d_y"),
          activation("d_y2", at.two_gradients),
          activation("y", at.y),
          mask,
          activation("x"),
          builder.parameter("gamma", channels, {}, false),
          builder.parameter("beta", channels, {}, false),
          statistics("mean"),
          statistics("variance")},
         {first,
          activation("d_delta", at.d_delta),
          statistics("d_gamma"),
          statistics("d_beta"),
          statistics("d_mean"),
          statistics("d_variance")},
         graph::BatchNormAttributes{.activation = at.relu ? Activation::kRelu : Activation::kNone,
                                    .lanes = sums ? 3 : 1}});
    builder.keep(first);
  };
  test.value = [=](const std::string& tensor, int64_t i) {
    if (tensor == "mask") return std::floor(uniform(tensor, i, 0, 256));
    if (tensor == "variance") return uniform(tensor, i, 0.5, 2);
    return value_of({at.rows, at.channels}, tensor, i);
  };
  return test;
}

// The forms in which fuse_gradient_sums() and save_relu_masks() leave these ops.
TEST(BatchNormTest, GradientsOfTwoReadersAndMasksMatchTheReferenceOnAllDevices) {
  for (const auto& [rows, channels] :
       {std::pair<int64_t, int64_t>{1, 8}, {7, 5}, {29, 24}, {40, 72}}) {
    for (const graph::OpKind kind :
         {graph::OpKind::kBatchNormBackward, graph::OpKind::kBatchNormSums}) {
      check_on_all_devices(backward({rows, channels, true, false, false, false, false, kind}));
      check_on_all_devices(backward({rows, channels, true, true, false, false, false, kind}));
      check_on_all_devices(backward({rows, channels, true, false, true, false, false, kind}));
      check_on_all_devices(backward({rows, channels, true, true, true, true, false, kind}));
      if (channels % 8 != 0) continue;
      check_on_all_devices(backward({rows, channels, true, true, true, false, true, kind}));
      check_on_all_devices(backward({rows, channels, false, true, true, false, true, kind}));
      check_on_all_devices(backward({rows, channels, false, true, false, false, true, kind}));
    }
  }
}

OpTest masked_forward(const Case& at) {
  OpTest test = batch_norm(at);
  test.name += ", with a mask";
  test.build = [=](graph::GraphBuilder& builder) {
    const Shape shape = {at.rows, at.channels}, channels = {at.channels};
    const TensorId x = builder.activation_tensor("x", shape);
    const TensorId delta = at.delta ? builder.activation_tensor("delta", shape) : kNoTensor;
    builder.append(
        {graph::OpKind::kBatchNorm,
         "norm",
         {x,
          delta,
          builder.parameter("gamma", channels, {}, false),
          builder.parameter("beta", channels, {}, false),
          builder.running_statistic("running_mean", channels, 0, 0.1f),
          builder.running_statistic("running_variance", channels, 1, 0.1f)},
         {builder.activation_tensor("y", shape),
          builder.statistics_tensor("mean", channels),
          builder.statistics_tensor("variance", channels),
          builder.tensor("mask", {at.rows, at.channels / 8}, DType::kU8, graph::Role::kActivation)},
         graph::BatchNormAttributes{.activation =
                                        at.relu ? Activation::kRelu : Activation::kNone}});
  };
  test.cpu = {};  // which has no kernels for masks
  return test;
}

TEST(BatchNormTest, MasksHaveABitForEachElementAboveZero) {
  for (const auto& [rows, channels] :
       {std::pair<int64_t, int64_t>{1, 8}, {37, 24}, {50, 72}, {5, 264}})
    check_on_all_devices(masked_forward({rows, channels, true, true}));
}

// Positive numbers that the type rounds to zero have no bit, as their y is not above it.
TEST(BatchNormTest, MasksFollowWhatIsStored) {
  OpTest test = masked_forward({4, 8, true, true});
  test.value = [](const std::string& tensor, int64_t i) {
    // y is some 0.3 gamma: below half of BF16's least number, of FP16's, or above both.
    constexpr double kGamma[] = {0x1p-133, 0x1p-24, 1, 0x1p-14, 0x1p-133, 0x1p-24, 0x1p-132, 1};
    if (tensor == "gamma") return kGamma[i];
    if (tensor == "x") return i / 8 % 2 == 0 ? 0x1p-10 : -0x1p-10;
    return tensor == "delta" || tensor == "beta" ? 0.0 : 1.0;
  };
  test.tolerance = [](const graph::OpCall& expected, graph::OutputName output, int64_t i) {
    const bool mask =
        expected.kind() == graph::OpKind::kBatchNorm && output == graph::BatchNormOut::kMask;
    return mask ? Tolerance{0, 0} : tolerance(expected, output, i);
  };
  check_on_all_devices(test);
}

TEST(BatchNormTest, SumsLoseNoRowsAtTheBordersOfParts) {
  check_on_all_devices(batch_norm({4100, 3, true, true}));
  check_on_all_devices(batch_norm({4500, 8, true, true}));
}

// Runs the last op of a graph of floats on a GPU with so many multiprocessors. Tensors are filled by
// their names; returns those of the outputs, in order.
std::vector<std::vector<float>> run_on_gpu(const OpTest& test, int multiprocessors) {
  graph::GraphBuilder builder(graph::Purpose::kInference);
  test.build(builder);
  const graph::Graph graph = std::move(builder).finish();
  const graph::Op& op = graph.ops.back();
  const auto implementation = std::ranges::find_if(
      test.cuda, [&](const exec::Implementation& row) { return row.kind == op.kind; });
  std::vector<std::vector<float>> memory;
  std::vector<std::byte*> tensors;
  for (const graph::Tensor& tensor : graph.tensors) {
    memory.emplace_back(static_cast<size_t>(tensor.shape.elements()));
    for (size_t i = 0; i < memory.back().size(); ++i)
      memory.back()[i] = static_cast<float>(test.value(tensor.name, static_cast<int64_t>(i)));
    tensors.push_back(reinterpret_cast<std::byte*>(memory.back().data()));
  }
  std::vector<float> workspace(implementation->workspace_bytes(graph::OpCall(graph, op)) /
                               sizeof(float));
  CUstream_st stream;
  cuda::LaunchContext context{.stream = &stream, .multiprocessors = multiprocessors};
  fibers::order = fibers::Order::kForward;
  implementation->run(graph::OpCall(graph,
                                    op,
                                    tensors.data(),
                                    reinterpret_cast<std::byte*>(workspace.data()),
                                    test.lane,
                                    &context));
  fibers::drain();
  fibers::order = fibers::Order::kEach;
  std::vector<std::vector<float>> outputs;
  for (const TensorId id : op.outputs)
    outputs.push_back(id == kNoTensor ? std::vector<float>() : memory[static_cast<size_t>(id)]);
  return outputs;
}

// More blocks than the last kernel loads at once, and the last one with few rows. All sums are of
// integers, and exact.
TEST(BatchNormTest, SumsLoseNoBlocksOfManyMultiprocessors) {
  constexpr int64_t kRows = 64 * 8209;
  OpTest test =
      backward({kRows, 1, true, false, false, false, false, graph::OpKind::kBatchNormSums});
  test.value = [](const std::string& tensor, int64_t i) {
    if (tensor == "x") return static_cast<double>(i % 64);
    if (tensor == "d_y") return static_cast<double>(i % 4);
    return tensor == "d_y2" || tensor == "gamma" ? 1.0 : 0.0;  // a mean of 0, no variance
  };
  const std::vector<std::vector<float>> sums = run_on_gpu(test, 200);
  const float d_beta = sums[static_cast<size_t>(graph::BatchNormBackwardOut::kDBeta)].at(0);
  EXPECT_EQ(d_beta, 2.5f * kRows);
  // The sum over x of (x % 4 + 1) x, 64 values of it: 5120.
  const double rstd = 1 / std::sqrt(1e-5f);
  EXPECT_NEAR(sums[static_cast<size_t>(graph::BatchNormBackwardOut::kDGamma)].at(0) / rstd,
              5120.0 * kRows / 64,
              1e-6 * 5120.0 * kRows / 64);

  test.build = [](graph::GraphBuilder& builder) {
    const TensorId to = builder.statistics_tensor("statistics", {2, 1});
    builder.append({graph::OpKind::kBatchStatistics,
                    "statistics",
                    {builder.activation_tensor("x", {kRows, 1})},
                    {to},
                    graph::BatchNormAttributes{}});
    builder.keep(to);
  };
  EXPECT_EQ(run_on_gpu(test, 200)[0], (std::vector<float>{31.5f, 341.25f}));
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
      return expected.kind() == graph::OpKind::kBatchNorm ? Tolerance{0, 0}
                                                          : tolerance(expected, output, i);
    };
    test.value = [](const std::string& tensor, int64_t i) {
      return tensor == "x" ? 0.1 : value_of({64, 4}, tensor, i);
    };
    check_on_all_devices(test);
    test.build = batch_norm({1, 4, false, relu}).build;
    check_on_all_devices(test);
  }
}

TEST(BatchNormTest, NotANumberIsNotHidden) {
  OpTest test = batch_norm({20, 3, false, true});
  test.value = [](const std::string& tensor, int64_t i) {
    return tensor == "x" && i == 7 ? std::nan("") : value_of({20, 3}, tensor, i);
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
           .reference = kReference,
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
