// Catches: a bias or activation applied to the wrong element, twice, to a partial sum or not at
// all; a value before the activation that is not kept; operands taken the wrong way round; outputs
// that depend on how many rows there are, on the threads or on the vector width; accumulation where
// there should be none, or none where there should be; padding of rows that is overwritten or read;
// padding of a head's weight that does not stay 0 or changes a result.
#include "runtime/graph/ops/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"
#include "tests/reference/activations.h"

namespace lockstep::test {
namespace {

// ---- The references: sums of products, and of their sizes for the tolerances ----

struct Sum {
  void add(double term) {
    value += term;
    size += std::abs(term);
  }
  double value = 0, size = 0;
};

Sum output_sum(const graph::LinearForward<double>& op, int64_t m, int64_t n) {
  Sum sum;
  for (int64_t k = 0; k < op.shape.inputs; ++k)
    sum.add(op.x[m * op.shape.inputs + k] * op.weight[n * op.shape.inputs + k]);
  if (op.bias != nullptr) sum.add(op.bias[n]);
  return sum;
}

Sum input_gradient_sum(const graph::LinearBackward<double>& op, int64_t m, int64_t k) {
  Sum sum;
  for (int64_t n = 0; n < op.shape.outputs; ++n)
    sum.add(op.d_y[m * op.stride + n] * op.weight[n * op.shape.inputs + k]);
  return sum;
}

Sum weight_gradient_sum(const graph::LinearBackward<double>& op, int64_t n, int64_t k) {
  Sum sum;
  for (int64_t m = 0; m < op.shape.rows; ++m)
    sum.add(op.d_y[m * op.stride + n] * op.x[m * op.shape.inputs + k]);
  return sum;
}

Sum bias_gradient_sum(const graph::LinearBackward<double>& op, int64_t n) {
  Sum sum;
  for (int64_t m = 0; m < op.shape.rows; ++m) sum.add(op.d_y[m * op.stride + n]);
  return sum;
}

void reference_forward(const graph::OpCall& call) {
  const graph::LinearForward<double> op{call};
  for (int64_t m = 0; m < op.shape.rows; ++m) {
    for (int64_t n = 0; n < op.shape.outputs; ++n) {
      const double sum = output_sum(op, m, n).value;
      if (op.pre != nullptr) op.pre[m * op.shape.outputs + n] = sum;
      op.y[m * op.stride + n] = activation_value(op.activation, sum);
    }
    std::fill(op.y + m * op.stride + op.shape.outputs, op.y + m * op.stride + op.padded_outputs, 0);
  }
}

void reference_backward(const graph::OpCall& call) {
  const graph::LinearBackward<double> op{call};
  const auto [rows, inputs, outputs] = op.shape;
  for (int64_t i = 0; op.d_x != nullptr && i < rows * inputs; ++i) {
    op.d_x[i] = input_gradient_sum(op, i / inputs, i % inputs).value;
    if (op.saved != nullptr) op.d_x[i] *= activation_derivative(op.input_activation, op.saved[i]);
  }
  for (int64_t i = 0; op.d_weight != nullptr && i < outputs * inputs; ++i)
    op.d_weight[i] = (op.accumulate_weight ? op.d_weight[i] : 0) +
                     weight_gradient_sum(op, i / inputs, i % inputs).value;
  for (int64_t n = 0; op.d_bias != nullptr && n < outputs; ++n)
    op.d_bias[n] = (op.accumulate_bias ? op.d_bias[n] : 0) + bias_gradient_sum(op, n).value;
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kLinear, "double", reference_forward},
    {graph::OpKind::kLinearBackward, "double", reference_backward},
    {graph::OpKind::kActivationBackward, "double", activation_backward_reference},
};

// Of a sum of so many products, in units of its terms' sizes: half a rounding for each. With bf16x3
// six roundings for each chunk of 32, those of the chains within it and what the products leave
// out; floats stay far within that, as their errors cancel.
double sum_error(const graph::OpCall& call, int64_t terms) {
  if (call.bf16x3()) return 3.0 * static_cast<double>((terms + 31) / 32) + 10;
  return 0.5 * static_cast<double>(terms + 1);
}

constexpr double kSteepest = 1.13;  // of all activations
constexpr Tolerance kUntouched = {0, 1};

Tolerance forward_tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t i) {
  const graph::LinearForward<double> op{expected};
  const int64_t stride = output == graph::LinearOut::kY ? op.stride : op.shape.outputs;
  if (i % stride >= op.shape.outputs) return kUntouched;
  const Sum sum = output_sum(op, i / stride, i % stride);
  const double pre = std::abs(sum.value);
  // An activation's own error is some ulp of |y| <= |pre| + 1; it may read the rounded sum.
  const double floats = (kSteepest * sum_error(expected, op.shape.inputs + 1) + 8) * (sum.size + 1);
  return {floats, output == graph::LinearOut::kPre ? pre : std::abs(op.y[i]) + kSteepest * pre};
}

Tolerance backward_tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t i) {
  const graph::LinearBackward<double> op{expected};
  const auto [rows, inputs, outputs] = op.shape;
  if (output == graph::LinearBackwardOut::kDX) {
    const Sum sum = input_gradient_sum(op, i / inputs, i % inputs);
    const double error = sum_error(expected, outputs) * sum.size, size = std::abs(sum.value);
    if (op.saved == nullptr) return {error, size};
    return {kSteepest * error + 32 * size, std::abs(op.d_x[i]) + kSteepest * size};
  }
  // One more for what was there before, which is below 1.
  const Sum sum = output == graph::LinearBackwardOut::kDWeight
                      ? weight_gradient_sum(op, i / inputs, i % inputs)
                      : bias_gradient_sum(op, i);
  return {sum_error(expected, rows + 1) * (sum.size + 1), 0};
}

Tolerance tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t i) {
  if (expected.kind() == graph::OpKind::kLinear) return forward_tolerance(expected, output, i);
  return backward_tolerance(expected, output, i);
}

// ---- The tests ----

std::string describe(const graph::LinearShape& s) {
  return std::to_string(s.rows) + " x " + std::to_string(s.inputs) + " -> " +
         std::to_string(s.outputs);
}

OpTest linear(const graph::LinearShape& s, bool bias, Activation activation) {
  return {
      .name = "linear " + describe(s) + (bias ? " with bias" : "") + ", activation " +
              std::to_string(static_cast<int>(activation)),
      .build =
          [=](graph::GraphBuilder& builder) {
            const TensorId x = builder.activation_tensor("x", {s.rows, s.inputs});
            const TensorId weight = builder.parameter("weight", {s.outputs, s.inputs}, {}, false);
            ops::linear(builder,
                        "y",
                        x,
                        weight,
                        bias ? builder.parameter("bias", {s.outputs}, {}, false) : kNoTensor,
                        activation);
          },
      .reference = kReference,
      .cpu = cpu::kCpuLinear,
      .cuda = cuda::kCudaLinear,
      .tolerance = tolerance};
}

OpTest on_the_cpu(OpTest test) {
  test.cuda = {};
  return test;
}

constexpr Activation kActivations[] = {Activation::kNone,
                                       Activation::kRelu,
                                       Activation::kGeluTanh,
                                       Activation::kGeluErf,
                                       Activation::kSilu,
                                       Activation::kTanh,
                                       Activation::kRelu6};

// Sizes around the CPU's tile, its few-rows kernel (at most 8 rows), a strip (192 outputs), a chunk
// of rows (512) and a depth block (768).
constexpr graph::LinearShape kShapes[] = {{1, 1, 1},
                                          {1, 70, 100},
                                          {2, 5, 33},
                                          {4, 17, 40},
                                          {5, 785, 70},
                                          {8, 64, 200},
                                          {9, 20, 10},
                                          {16, 50, 97},
                                          {17, 800, 12},
                                          {32, 64, 32},
                                          {33, 31, 110},
                                          {40, 770, 205},
                                          {40, 1600, 24},
                                          {70, 13, 200},
                                          {130, 40, 37},
                                          {193, 20, 230},
                                          {515, 6, 201}};

TEST(LinearTest, ReferenceMatchesFiniteDifferences) {
  for (const Activation activation : kActivations) {
    OpTest test = linear({3, 4, 5}, true, activation);
    check_gradient_of_reference(test);
  }
}

TEST(LinearTest, MatchesTheReferenceInEverySize) {
  for (const graph::LinearShape& s : kShapes) {
    check_on_all_devices(on_the_cpu(linear(s, false, Activation::kNone)));
    check_on_all_devices(on_the_cpu(linear(s, true, Activation::kGeluTanh)));
  }
}

TEST(LinearTest, MatchesTheReferenceWithEveryActivation) {
  for (const Activation activation : kActivations) {
    for (const bool bias : {false, true}) {
      check_on_all_devices(linear({1, 1, 1}, bias, activation));
      check_on_all_devices(linear({7, 33, 24}, bias, activation));
      check_on_all_devices(linear({19, 9, 35}, bias, activation));
      OpTest inference = linear({12, 20, 24}, bias, activation);
      inference.gradients = 0;
      check_on_all_devices(inference);
    }
  }
}

// Sizes around its tiles (16), panels and pairs of tiles (32), blocks of rows and of the depth.
TEST(LinearTest, MatchesTheReferenceWithThreeBfloat16Numbers) {
  const auto check = [](const graph::LinearShape& s, Activation activation) {
    OpTest test = on_the_cpu(linear(s, true, activation));
    test.bf16x3 = true;
    check_on_all_devices(test);
  };
  for (const graph::LinearShape& s : {graph::LinearShape{1, 70, 100},
                                      {5, 785, 70},
                                      {17, 33, 12},
                                      {33, 31, 110},
                                      {40, 1600, 205},
                                      {515, 64, 33}})
    check(s, Activation::kGeluTanh);
  for (const Activation activation : {Activation::kNone, Activation::kRelu})
    check({33, 70, 50}, activation);
}

TEST(LinearTest, ReadsImagesAsRows) {
  OpTest test = linear({4, 30, 7}, true, Activation::kRelu);
  test.build = [](graph::GraphBuilder& builder) {
    const TensorId x = builder.activation_tensor("x", {4, 3, 2, 5});
    ops::linear(builder,
                "y",
                x,
                builder.parameter("weight", {7, 30}, {}, false),
                builder.parameter("bias", {7}, {}, false),
                Activation::kRelu);
  };
  check_on_all_devices(test);
}

// As logits have on a GPU.
TEST(LinearTest, LeavesThePaddingOfRows) {
  OpTest test = linear({9, 12, 21}, true, Activation::kNone);
  test.cpu = {};
  test.build = [build = test.build](graph::GraphBuilder& builder) {
    build(builder);
    builder[builder.graph().ops.back().outputs[graph::LinearOut::kY]].padded_columns = 24;
  };
  check_on_all_devices(test);
}

// The head of a network, whose weight and bias zeros follow in memory. The logits of the second
// case have no room for all of them.
TEST(LinearTest, PadsTheOutputsOfAHeadWithZeros) {
  for (const int64_t stride : {24, 0, 32}) {
    for (const bool bias : {false, true}) {
      OpTest test = linear({9, 12, 21}, bias, Activation::kNone);
      test.name += ", padded";
      test.cpu = {};
      test.build = [=, build = test.build](graph::GraphBuilder& builder) {
        build(builder);
        for (const TensorId parameter : builder.graph().parameters)
          builder[parameter].padded_rows = 24;
        builder[builder.graph().ops.back().outputs[graph::LinearOut::kY]].padded_columns = stride;
      };
      test.value = [=](const std::string& tensor, int64_t i) {
        if (tensor == "d_y" && stride > 0 && i % stride >= 21) return 0.0;
        return std::sin(static_cast<double>(7 * i + static_cast<int64_t>(tensor.size())));
      };
      check_on_all_devices(test);
    }
  }
}

// What other ops make of linear_backward: one that adds to gradients, has no d_x, or multiplies it
// by the derivative of the activation before.
OpTest backward(const graph::LinearShape& s,
                bool d_x,
                const graph::LinearBackwardAttributes& attributes) {
  OpTest test = linear(s, true, Activation::kNone);
  test.name += ", backward";
  test.gradients = 0;
  test.build = [=](graph::GraphBuilder& builder) {
    const TensorId d_weight = builder.statistics_tensor("d_weight", {s.outputs, s.inputs});
    const Shape x = {s.rows, s.inputs};
    builder.append(
        {graph::OpKind::kLinearBackward,
         "linear",
         {builder.activation_tensor("d_y", {s.rows, s.outputs}),
          builder.activation_tensor("x", x),
          builder.activation_tensor("weight", {s.outputs, s.inputs}),
          attributes.input_activation == Activation::kNone ? kNoTensor
                                                           : builder.activation_tensor("saved", x)},
         {d_x ? builder.activation_tensor("d_x", x) : kNoTensor,
          d_weight,
          builder.statistics_tensor("d_bias", {s.outputs})},
         attributes});
    builder.keep(d_weight);
  };
  return test;
}

TEST(LinearTest, AddsToGradients) {
  for (const bool weight : {false, true}) {
    for (const bool bias : {false, true}) {
      for (const graph::LinearShape& s : {graph::LinearShape{5, 3, 2}, {33, 24, 40}})
        check_on_all_devices(
            backward(s, true, {.accumulate_weight = weight, .accumulate_bias = bias}));
    }
  }
  OpTest with_bf16x3 = on_the_cpu(
      backward({40, 70, 50}, true, {.accumulate_weight = true, .accumulate_bias = true}));
  with_bf16x3.bf16x3 = true;
  check_on_all_devices(with_bf16x3);
}

TEST(LinearTest, HasNoGradientOfInputsThatNeedNone) {
  check_on_all_devices(backward({6, 10, 7}, false, {}));
}

TEST(LinearTest, MultipliesByTheDerivativeOfTheActivationBefore) {
  for (const Activation activation :
       {Activation::kGeluTanh, Activation::kSilu, Activation::kRelu}) {
    check_on_all_devices(backward({5, 8, 3}, true, {.input_activation = activation}));
    check_on_all_devices(backward({21, 17, 30}, true, {.input_activation = activation}));
  }
}

// Frozen weights: no d_weight, and then x is not read.
TEST(LinearTest, HasNoGradientOfAFrozenWeight) {
  for (const bool bias : {false, true}) {
    for (const graph::LinearShape& s : {graph::LinearShape{5, 3, 2}, {33, 24, 40}}) {
      OpTest test = linear(s, bias, Activation::kGeluTanh);
      test.name += ", frozen";
      test.build = [build = test.build](graph::GraphBuilder& builder) {
        build(builder);
        builder[builder.graph().parameters[0]].frozen = true;
      };
      check_on_all_devices(test);
      test.bf16x3 = true;
      check_on_all_devices(on_the_cpu(test));
    }
  }
}

// ---- Bits ----

// a(0) b(0) + ... + a(n - 1) b(n - 1) of floats, by one chain of fused multiply-adds.
struct ChainSum {
  template <typename A, typename B>
  float operator()(int64_t n, const A& a, const B& b) const {
    float sum = 0;
    for (int64_t k = 0; k < n; ++k)
      sum = std::fma(static_cast<float>(a(k)), static_cast<float>(b(k)), sum);
    return sum;
  }
};

// The same by the tiles of bf16x3.h: for each 32 of k, a chain of the even ones and one of the odd.
struct TileSum {
  template <typename A, typename B>
  float operator()(int64_t n, const A& a, const B& b) const {
    float sum = 0;
    for (int64_t first = 0; first < n; first += 32) {
      float chains[2] = {0, 0};
      for (int64_t k = first; k < std::min(n, first + 32); ++k)
        chains[k % 2] = std::fma(static_cast<float>(a(k)), static_cast<float>(b(k)), chains[k % 2]);
      sum += chains[0] + chains[1];
    }
    return sum;
  }
};

// A layer whose products are added up by SumOf.
template <typename SumOf>
void exact_forward(const graph::OpCall& call) {
  const graph::LinearForward<double> op{call};
  const auto [rows, inputs, outputs] = op.shape;
  for (int64_t i = 0; i < rows * outputs; ++i) {
    const double* const x = op.x + i / outputs * inputs;
    const double* const w = op.weight + i % outputs * inputs;
    const float sum = SumOf()(
        inputs, [=](int64_t k) { return x[k]; }, [=](int64_t k) { return w[k]; });
    op.y[i] = op.bias == nullptr ? sum : sum + static_cast<float>(op.bias[i % outputs]);
  }
}

template <typename SumOf>
void exact_backward(const graph::OpCall& call) {
  const graph::LinearBackward<double> op{call};
  const auto [rows, inputs, outputs] = op.shape;
  for (int64_t i = 0; i < rows * inputs; ++i) {
    const double* const d_y = op.d_y + i / inputs * outputs;
    const double* const w = op.weight + i % inputs;
    op.d_x[i] = SumOf()(
        outputs, [=](int64_t n) { return d_y[n]; }, [=](int64_t n) { return w[n * inputs]; });
  }
  for (int64_t i = 0; i < outputs * inputs; ++i) {
    const double* const d_y = op.d_y + i / inputs;
    const double* const x = op.x + i % inputs;
    op.d_weight[i] = SumOf()(
        rows,
        [=](int64_t m) { return d_y[m * outputs]; },
        [=](int64_t m) { return x[m * inputs]; });
  }
  for (int64_t n = 0; op.d_bias != nullptr && n < outputs; ++n) {
    float sum = 0;
    for (int64_t m = 0; m < rows; ++m) sum += static_cast<float>(op.d_y[m * outputs + n]);
    op.d_bias[n] = sum;
  }
}

template <typename SumOf>
constexpr exec::Implementation kExact[] = {
    {graph::OpKind::kLinear, "exact", exact_forward<SumOf>},
    {graph::OpKind::kLinearBackward, "exact", exact_backward<SumOf>},
};

// The CPU's implementations that multiply by tiles, or the others.
std::vector<exec::Implementation> implementations(bool tiles) {
  std::vector<exec::Implementation> some;
  for (const exec::Implementation& row : cpu::kCpuLinear)
    if ((std::string_view(row.name) == "tiles") == tiles) some.push_back(row);
  return some;
}

void check_bits(exec::Implementations implementations, exec::Implementations reference, bool fma) {
  for (const graph::LinearShape& s : kShapes) {
    for (const bool bias : {false, true}) {
      OpTest test = on_the_cpu(linear(s, bias, Activation::kNone));
      test.cpu = implementations;
      test.reference = reference;
      test.needs_fma = fma;
      test.tolerance = [](const graph::OpCall& expected, graph::OutputName output, int64_t i) {
        const bool rounds = expected.output_dtype(output) == DType::kBF16;
        return Tolerance{0, rounds ? std::abs(expected.output<double>(output)[i]) : 0};
      };
      check_on_all_devices(test);
    }
  }
}

// So the bits of a row do not depend on the other rows: generating one token at a time gives what a
// whole sequence gives.
TEST(LinearTest, OutputsAreChainsOfFusedMultiplyAddsOnTheCpu) {
  static const std::vector<exec::Implementation> kRows = implementations(/*tiles=*/false);
  check_bits(kRows, kExact<ChainSum>, /*fma=*/true);
}

// Products of bfloat16 are exact in floats, so plain x86-64 gives the same bits.
TEST(LinearTest, OutputsOfTilesAreSumsOfChunks) {
  static const std::vector<exec::Implementation> kRows = implementations(/*tiles=*/true);
  ASSERT_FALSE(kRows.empty());
  check_bits(kRows, kExact<TileSum>, /*fma=*/false);
}

}  // namespace
}  // namespace lockstep::test
