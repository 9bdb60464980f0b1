// Catches: rows of a chunk taken for those of another, a gradient of the weight that leaves a chunk
// out or adds to what was there, a last chunk that is not full, ignored targets that count, padding
// of the logits that reaches a gradient, rows that are moved together and not back, a sequence's
// sum or gradient scale given to another one, padding that does not count in a sequence.
#include "runtime/graph/ops/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

// The gradient of a row's logits, not scaled; adds its loss. Zeros where the row does not count.
std::vector<double> row_gradient(const graph::LinearCrossEntropy<double>& op,
                                 const graph::LaneContext& lane,
                                 int64_t row,
                                 double* statistics) {
  const int64_t classes = op.shape.outputs, inputs = op.shape.inputs;
  std::vector<double> g(static_cast<size_t>(classes), 0.0);
  const int32_t target = op.targets[row];
  if (target < 0 || (op.is_loss && row >= lane.valid_rows)) return g;
  double largest = -1e300, total = 0;
  int64_t first_largest = 0;
  for (int64_t v = 0; v < classes; ++v) {
    double& logit = g[static_cast<size_t>(v)];
    if (op.bias != nullptr) logit = op.bias[v];
    for (int64_t k = 0; k < inputs; ++k)
      logit += op.x[row * inputs + k] * op.weight[v * inputs + k];
    if (logit > largest) first_largest = v;
    largest = std::max(largest, logit);
  }
  if (op.d_x == nullptr) {  // no two logits are equal
    int64_t larger = 0;
    for (const double logit : g) larger += logit > g[static_cast<size_t>(target)];
    statistics[3] += larger < 5;
  }
  for (const double logit : g) total += std::exp(logit - largest);
  const double smoothing = op.attributes.label_smoothing;
  for (int64_t v = 0; v < classes; ++v) {
    const double log_p = g[static_cast<size_t>(v)] - largest - std::log(total);
    const double wanted =
        (v == target ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
    statistics[0] -= wanted * log_p;
    g[static_cast<size_t>(v)] = std::exp(log_p) - wanted;
  }
  statistics[1] += 1;
  statistics[2] += first_largest == target ? 1 : 0;
  return g;
}

void reference(const graph::OpCall& call) {
  const graph::LinearCrossEntropy<double> op{call};
  const int64_t rows = op.shape.rows, classes = op.shape.outputs, inputs = op.shape.inputs;
  if (op.statistics != nullptr) std::fill_n(op.statistics, 4, 0.0);
  if (op.sums != nullptr) std::fill_n(op.sums, rows / op.sequence_rows, 0.0);
  if (op.d_weight != nullptr && !op.attributes.accumulate_weight)
    std::fill_n(op.d_weight, classes * inputs, 0.0);
  if (op.d_bias != nullptr && !op.attributes.accumulate_bias) std::fill_n(op.d_bias, classes, 0.0);
  for (int64_t row = 0; row < rows; ++row) {
    double of_row[4] = {};
    const std::vector<double> g = row_gradient(op, call.lane(), row, of_row);
    for (int k = 0; op.statistics != nullptr && k < 4; ++k) op.statistics[k] += of_row[k];
    if (op.sums != nullptr) op.sums[row / op.sequence_rows] -= of_row[0];
    if (op.d_x == nullptr) continue;
    const double scale = op.d_sums == nullptr ? static_cast<double>(call.lane().gradient_scale)
                                              : -op.d_sums[row / op.sequence_rows];
    std::vector<double> d_x(static_cast<size_t>(inputs), 0.0);
    for (int64_t v = 0; v < classes; ++v) {
      const double scaled = g[static_cast<size_t>(v)] * scale;
      if (op.d_bias != nullptr) op.d_bias[v] += scaled;
      for (int64_t k = 0; k < inputs; ++k) {
        if (op.d_weight != nullptr) op.d_weight[v * inputs + k] += scaled * op.x[row * inputs + k];
        d_x[static_cast<size_t>(k)] += scaled * op.weight[v * inputs + k];
      }
    }
    std::copy(d_x.begin(), d_x.end(), op.d_x + row * inputs);
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kLinearCrossEntropy, "double", reference},
    {graph::OpKind::kSequenceLogProb, "double", reference},
    {graph::OpKind::kSequenceLogProbBackward, "double", reference}};

// Inputs and weights are uniform in [-1, 1), so a logit has a standard deviation of sqrt(K) / 3 and
// is below sqrt(K) + 1, or 2 with a bias. As a sum of K products it is known to some K / 4
// roundings of floats, and then rounded to what tensors store. A probability has the logits' error
// as a relative one, and all of a row add up to 1; so do a row's errors in d_x, and in d_weight and
// d_bias those of the rows add up.
Tolerance tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t i) {
  const graph::LinearCrossEntropy<double> op{expected};
  const auto inputs = static_cast<double>(op.shape.inputs);
  const auto rows = static_cast<double>(op.shape.rows);
  const double logit = std::sqrt(inputs) + 1, floats = 8 + inputs / 4;
  const double scale = op.d_sums == nullptr ? expected.lane().gradient_scale : 1;
  if (op.sums != nullptr) {  // a float, of up to `length` logits
    const auto length = static_cast<double>(op.sequence_rows);
    return {length * 2 * floats + std::abs(op.sums[i]), length * 2 * logit};
  }
  if (output == graph::LinearCrossEntropyOut::kStatistics)
    return i == 0 ? Tolerance{rows * 2 * floats, rows * 2 * logit} : Tolerance{0, 0};
  if (output == graph::LinearCrossEntropyOut::kDX)
    return {scale * 4 * (floats + std::sqrt(static_cast<double>(op.shape.outputs))),
            scale * 4 * (logit + 1) + std::abs(op.d_x[i])};
  return {scale * rows * (floats + rows / 8), scale * rows * 2 * (logit + 1)};
}

struct HeadSizes {
  int64_t rows, inputs, classes, chunk;
  int64_t valid_rows = 1 << 30;
  bool bias = false;
};

OpTest head(const HeadSizes& at, float smoothing, bool training = true) {
  return {
      .name = "linear_cross_entropy " + std::to_string(at.rows) + " x " +
              std::to_string(at.inputs) + " x " + std::to_string(at.classes) + " by " +
              std::to_string(at.chunk) + (at.bias ? ", bias" : "") +
              (training ? "" : ", evaluation"),
      .build =
          [=](graph::GraphBuilder& builder) {
            const TensorId x = builder.activation_tensor("x", {1, at.rows, at.inputs});
            const TensorId targets = builder.input("targets", {1, at.rows}, DType::kI32);
            const TensorId weight = builder.parameter("weight", {at.classes, at.inputs}, {}, false);
            const TensorId bias =
                at.bias ? builder.parameter("bias", {at.classes}, {}, false) : kNoTensor;
            ops::linear_cross_entropy(builder, x, weight, bias, targets, smoothing, at.chunk);
          },
      .reference = kReference,
      .cpu = cpu::kCpuLinearCrossEntropy,
      .cuda = cuda::kCudaLinearCrossEntropy,
      .tolerance = tolerance,
      .gradients = training ? 1u : 0u,
      .value =
          [=](const std::string& tensor, int64_t i) {
            if (tensor == "targets")
              return i % 5 == 3 ? -1.0 : static_cast<double>(i * 7 % at.classes);
            return std::sin(static_cast<double>(i * i % 9973 + i + (tensor == "x" ? 0 : 7)));
          },
      .lane = {.valid_rows = at.valid_rows, .gradient_scale = 0.125f}};
}

TEST(LinearCrossEntropyTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(head({6, 3, 4, 4}, 0));
  check_gradient_of_reference(head({6, 3, 4, 4}, 0.25f));
  check_gradient_of_reference(head({6, 3, 4, 4, 5, true}, 0.25f));
}

TEST(LinearCrossEntropyTest, MatchesTheReferenceOnAllDevices) {
  for (const float smoothing : {0.0f, 0.1f}) {
    check_on_all_devices(head({1, 1, 2, 1}, smoothing));
    check_on_all_devices(head({7, 5, 3, 2}, smoothing));
    check_on_all_devices(head({40, 16, 50, 8}, smoothing));
    check_on_all_devices(head({37, 24, 131, 16, 33}, smoothing));
    check_on_all_devices(head({20, 8, 67, 64}, smoothing));  // a chunk of all
  }
  for (const int64_t chunk : {1, 8, 16, 64})
    check_on_all_devices(head({37, 24, 131, chunk, 33, true}, 0.1f));
  for (const bool bias : {false, true})
    check_on_all_devices(head({37, 24, 131, 16, 33, bias}, 0.1f, false));
}

TEST(LinearCrossEntropyTest, RowsThatCountAreFewOrNone) {
  check_on_all_devices(head({7, 5, 3, 2, 0, true}, 0));
  check_on_all_devices(head({9, 16, 50, 64, 0}, 0));
  for (const int64_t every : {7, 30}) {
    OpTest test = head({90, 16, 50, 8, 1 << 30, true}, 0.1f);
    test.name += ", one of " + std::to_string(every);
    test.value = [=, value = test.value](const std::string& tensor, int64_t i) {
      return tensor == "targets" && i % every != every - 1 ? -1.0 : value(tensor, i);
    };
    check_on_all_devices(test);
  }
}

TEST(LinearCrossEntropyTest, HasNoGradientOfAFrozenWeight) {
  for (const int64_t chunk : {8, 64}) {
    OpTest test = head({40, 16, 50, chunk}, 0.1f);
    test.name += ", frozen";
    test.build = [build = test.build](graph::GraphBuilder& builder) {
      build(builder);
      builder[builder.graph().parameters[0]].frozen = true;
    };
    check_on_all_devices(test);
  }
}

TEST(LinearCrossEntropyTest, PaddedLogitsMatchTheReference) {
  for (const bool bias : {false, true}) {
    OpTest test = head({24, 16, 61, 8, 1 << 30, bias}, 0.1f);
    test.head_multiple = 32;
    check_on_all_devices(test);
  }
}

// rows is a number of sequences of `tokens` tokens.
OpTest sequences(const HeadSizes& at, int64_t tokens) {
  OpTest test = head(at, 0);
  test.name = "sequences of " + std::to_string(tokens) + ": " + test.name;
  test.build = [=](graph::GraphBuilder& builder) {
    const TensorId x = builder.activation_tensor("x", {at.rows, tokens, at.inputs});
    const TensorId targets = builder.input("targets", {at.rows, tokens}, DType::kI32);
    const TensorId weight = builder.parameter("weight", {at.classes, at.inputs}, {}, false);
    const TensorId bias = at.bias ? builder.parameter("bias", {at.classes}, {}, false) : kNoTensor;
    ops::sequence_log_prob(builder, "sums", x, weight, bias, targets, {at.rows, 1}, at.chunk);
  };
  return test;
}

TEST(SequenceLogProbTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(sequences({2, 3, 4, 4}, 3));
  check_gradient_of_reference(sequences({3, 3, 4, 4, 1, true}, 2));
}

TEST(SequenceLogProbTest, MatchesTheReferenceOnAllDevices) {
  check_on_all_devices(sequences({1, 1, 2, 1}, 1));
  check_on_all_devices(sequences({2, 5, 3, 2}, 3));
  check_on_all_devices(sequences({2, 8, 67, 64}, 33));
  check_on_all_devices(sequences({1, 8, 131, 16}, 70));
  for (const bool bias : {false, true})  // no row is left out as padding of a batch
    check_on_all_devices(sequences({6, 24, 131, 16, 1, bias}, 7));
}

TEST(SequenceLogProbTest, RowsThatCountAreFewOrNone) {
  for (const int64_t every : {7, 1000}) {
    OpTest test = sequences({6, 16, 50, 8, 1 << 30, true}, 15);
    test.name += ", one of " + std::to_string(every);
    test.value = [=, value = test.value](const std::string& tensor, int64_t i) {
      return tensor == "targets" && i % every != every - 1 ? -1.0 : value(tensor, i);
    };
    check_on_all_devices(test);
  }
}

TEST(SequenceLogProbTest, AddsToTheGradientsOfItsParametersOrHasNone) {
  for (const bool frozen : {false, true}) {
    OpTest test = sequences({5, 16, 50, 8, 1 << 30, true}, 8);
    test.name += frozen ? ", frozen" : ", adds";
    test.build = [=, build = test.build](graph::GraphBuilder& builder) {
      build(builder);
      for (const TensorId parameter : builder.graph().parameters) {
        builder[parameter].frozen = frozen;
        if (frozen) continue;
        const Shape shape = builder.shape(parameter);
        builder[parameter].gradient =
            builder.tensor("d", shape, DType::kF32, graph::Role::kParameterGradient);
      }
    };
    check_on_all_devices(test);
  }
}

TEST(SequenceLogProbTest, PaddedLogitsMatchTheReference) {
  for (const bool bias : {false, true}) {
    OpTest test = sequences({3, 16, 61, 8, 1 << 30, bias}, 8);
    test.head_multiple = 32;
    check_on_all_devices(test);
  }
}

}  // namespace
}  // namespace lockstep::test
