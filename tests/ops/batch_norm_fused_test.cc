// Catches, in the forms that the graph's fusions make of batch norms, and in their sums: bits of a
// mask in another order, or of numbers that are stored as zero; a sum of two gradients that is not
// rounded as an add rounds it, or read after d_delta lies over it; blocks lost on GPUs with many
// multiprocessors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/context.h"
#include "tests/fibers/host_stream.h"
#include "tests/fibers/order.h"
#include "tests/ops/batch_norm_cases.h"

namespace lockstep::test {
namespace {

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
    return batch_norm_value({at.rows, at.channels}, tensor, i);
  };
  return test;
}

// The forms in which fuse_gradient_sums() and save_relu_masks() leave these ops.
TEST(FusedBatchNormTest, GradientsOfTwoReadersAndMasksMatchTheReferenceOnAllDevices) {
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

OpTest masked_forward(const BatchNormCase& at) {
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

TEST(FusedBatchNormTest, MasksHaveABitForEachElementAboveZero) {
  for (const auto& [rows, channels] :
       {std::pair<int64_t, int64_t>{1, 8}, {37, 24}, {50, 72}, {5, 264}})
    check_on_all_devices(masked_forward({rows, channels, true, true}));
}

// Positive numbers that the type rounds to zero have no bit, as their y is not above it.
TEST(FusedBatchNormTest, MasksFollowWhatIsStored) {
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
    return mask ? Tolerance{0, 0} : batch_norm_tolerance(expected, output, i);
  };
  check_on_all_devices(test);
}

// Runs the last op of a graph of floats on a GPU with so many multiprocessors. Tensors are filled
// by their names; returns those of the outputs, in order.
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
TEST(FusedBatchNormTest, SumsLoseNoBlocksOfManyMultiprocessors) {
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

}  // namespace
}  // namespace lockstep::test
