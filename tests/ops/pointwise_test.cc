// Catches: a wrong function or derivative, NaN or infinity lost, a value overwritten while it is
// needed, elements lost or mixed up where inputs are broadcast, at the borders of rows, blocks and
// vectors, integers read as floats, inputs overwritten that are still read.
#include "runtime/graph/ops/pointwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/graph/ops/reduce.h"
#include "tests/ops/op_test.h"
#include "tests/reference/pointwise.h"
#include "tests/reference/reductions.h"

namespace lockstep::test {
namespace {

using F = graph::PointwiseFunction;

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kPointwise, "double", pointwise_reference},
    {graph::OpKind::kReduce, "double", reduce_reference},
};

Tolerance tolerance(const graph::OpCall& expected, graph::OutputName, int64_t i) {
  const graph::PointwiseForward<double> op{expected};
  const PointwiseElement element = pointwise_element(op, i);
  return {element.error, std::abs(element.value)};
}

struct Input {
  Shape shape;
  bool integer = false;
};

OpTest pointwise_test(const std::string& name,
                      const graph::PointwiseProgram& program,
                      const std::vector<Input>& inputs,
                      bool integers = false) {
  return {.name = name,
          .build =
              [=](graph::GraphBuilder& builder) {
                std::vector<TensorId> tensors;
                for (const Input& input : inputs) {
                  const std::string x = "x" + std::to_string(tensors.size());
                  tensors.push_back(
                      input.integer
                          ? builder.tensor(x, input.shape, DType::kI32, graph::Role::kActivation)
                          : builder.activation_tensor(x, input.shape));
                }
                ops::pointwise(builder, "y", tensors, program, integers);
              },
          .reference = kReference,
          .cpu = cpu::kCpuPointwise,
          .cuda = cuda::kCudaPointwise,
          .tolerance = tolerance};
}

graph::PointwiseProgram program_of(F function) {
  graph::PointwiseProgram program;
  int operands[3] = {-1, -1, -1};
  for (int k = 0; k < graph::operand_count(function); ++k) operands[k] = program.input(k);
  program.append(function, operands[0], operands[1], operands[2]);
  return program;
}

OpTest function_test(const FunctionCase& of, int64_t n) {
  OpTest test = pointwise_test(
      "function " + std::to_string(static_cast<int>(of.function)),
      program_of(of.function),
      std::vector<Input>(static_cast<size_t>(graph::operand_count(of.function)), Input{{n}}));
  test.low = of.low;
  test.high = of.high;
  if (!of.slope) test.gradients = 0;
  return test;
}

class PointwiseFunctionTest : public testing::TestWithParam<int> {
 protected:
  const FunctionCase& function() const { return functions()[static_cast<size_t>(GetParam())]; }
};
INSTANTIATE_TEST_SUITE_P(All,
                         PointwiseFunctionTest,
                         testing::Range(0, static_cast<int>(functions().size())));

TEST_P(PointwiseFunctionTest, DerivativeMatchesFiniteDifferences) {
  if (function().slope) {
    check_gradient_of_reference(function_test(function(), 50));
  } else {
    for (int k = 0; k < graph::operand_count(function().function); ++k)
      EXPECT_FALSE(program_of(function().function).derivative(k).has_value());
  }
}

TEST_P(PointwiseFunctionTest, MatchesTheReferenceOnAllDevices) {
  for (const int64_t n : {1, 19, 1031}) check_on_all_devices(function_test(function(), n));
}

TEST_P(PointwiseFunctionTest, TreatsNanInfinityAndZeroAsTheReferenceDoes) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kValues[] = {
      std::numeric_limits<double>::quiet_NaN(), kInf, -kInf, 0, 1, -1, 2, -0.5, 3};
  const F f = function().function;
  graph::PointwiseProgram program;  // infinities become numbers, which can be compared
  int operands[3] = {-1, -1, -1};
  for (int k = 0; k < graph::operand_count(f); ++k) operands[k] = program.input(k);
  const int y = program.append(f, operands[0], operands[1], operands[2]);
  const int beyond = program.append(F::kMul, program.append(F::kSign, y), program.constant(77));
  program.append(F::kWhere, program.append(F::kIsInf, y), beyond, y);
  const int64_t n = f == F::kWhere ? 729 : graph::operand_count(f) == 2 ? 81 : 9;
  OpTest test =
      pointwise_test("function " + std::to_string(static_cast<int>(f)),
                     program,
                     std::vector<Input>(static_cast<size_t>(graph::operand_count(f)), Input{{n}}));
  test.gradients = 0;
  test.value = [=](const std::string& tensor, int64_t i) {
    return kValues[(tensor == "x0" ? i : tensor == "x1" ? i / 9 : i / 81) % 9];
  };
  test.tolerance = [](const graph::OpCall&, graph::OutputName, int64_t) {
    return Tolerance{800, 80};
  };
  check_on_all_devices(test);
}

// x0 sigmoid(x0) + x1 tanh(x2): values are needed after others have been computed.
graph::PointwiseProgram chain() {
  graph::PointwiseProgram program;
  const int a = program.input(0);
  const int gate = program.append(F::kMul, a, program.append(F::kSigmoid, a));
  const int t = program.append(F::kTanh, program.input(2));
  program.append(F::kAdd, gate, program.append(F::kMul, program.input(1), t));
  return program;
}

TEST(PointwiseTest, BroadcastsAsNumPyDoes) {
  const std::vector<std::vector<Shape>> cases = {
      {{5, 7}, {5, 7}, {5, 7}},
      {{5, 7}, {7}, {}},                        // row vector, scalar
      {{3, 4, 5, 6}, {6}, {1}},                 // channels
      {{2, 37, 3}, {2, 37, 1}, {3}},            // a column, short rows
      {{2, 3, 600}, {2, 1, 600}, {3, 1}},       // rows longer than a block
      {{2, 1, 5}, {4, 1}, {2, 1, 1}},           // outer products
      {{3, 5, 7, 9}, {5, 1, 1}, {3, 1, 1, 9}},  // channels first
      {{2, 3, 2, 3, 2, 3, 2, 3}, {3, 1, 3, 1, 3, 2, 1}, {2, 1, 1, 1, 1, 1, 1, 3}},  // eight
      {{1, 1}, {1}, {}},
      {{64, 40}, {64, 1}, {40}},  // several rows in a block
      {{1030}, {1}, {1030}},
  };
  for (const auto& shapes : cases) {
    OpTest test = pointwise_test(to_string(shapes[0]) + to_string(shapes[1]) + to_string(shapes[2]),
                                 chain(),
                                 {{shapes[0]}, {shapes[1]}, {shapes[2]}});
    check_on_all_devices(test);
    if (shapes[0].elements() < 500) check_gradient_of_reference(test);
  }
}

TEST(PointwiseTest, ManyElementsOnManyThreads) {
  OpTest test = pointwise_test("many", chain(), {{{130, 701}}, {{701}}, {{130, 1}}});
  test.cuda = {};
  check_on_all_devices(test);
}

TEST(PointwiseTest, ReadsAndWritesIntegers) {
  graph::PointwiseProgram program;
  const int both = program.append(F::kMul, program.input(0), program.input(1));
  program.append(F::kSub, both, program.constant(0.5f));
  OpTest test = pointwise_test("integers", program, {{{33, 5}}, {{5}, true}});
  test.value = [](const std::string& tensor, int64_t i) {
    return tensor == "x1" ? i - 2 : 0.25 * (i % 8);
  };
  check_on_all_devices(test);
  check_gradient_of_reference(test);

  OpTest truncated = pointwise_test("to integers", program, {{{33, 5}}, {{33, 1}, true}}, true);
  truncated.value = test.value;
  truncated.gradients = 0;
  check_on_all_devices(truncated);
}

TEST(PointwiseTest, ReadsHalfAsManyIntegersAsItWritesNumbersOfTwoBytes) {
  // As many bytes as y, but not the same elements: y must not lie over them.
  OpTest test = pointwise_test("half", program_of(F::kAdd), {{{8, 1}, true}, {{8, 2}}});
  test.value = [](const std::string& tensor, int64_t i) { return tensor == "x0" ? i : 0.5; };
  check_on_all_devices(test);
}

TEST(PointwiseTest, InputsThatAreTheSameTensorOrAreNotRead) {
  OpTest test = pointwise_test("square", program_of(F::kMul), {{{40}}});
  test.build = [](graph::GraphBuilder& builder) {
    const TensorId x = builder.activation_tensor("x", {40});
    const TensorId shape = builder.activation_tensor("shape", {3, 1});
    ops::pointwise(builder, "y", {x, x, shape}, program_of(F::kMul));
    EXPECT_EQ(builder.graph().ops.back().inputs, std::vector<TensorId>{x});
    EXPECT_EQ(builder.shape(builder.graph().ops.back().outputs[graph::PointwiseOut::kY]),
              Shape({3, 40}));
  };
  check_on_all_devices(test);
  check_gradient_of_reference(test);
}

TEST(PointwiseTest, LargeExponentsAnglesAndTailsKeepTheirAccuracy) {
  struct Case {
    F function;
    double factor, error;
  };
  for (const auto& [function, factor, error] : {Case{F::kSin, 1e5, 4},
                                                Case{F::kCos, 3e4, 4},
                                                Case{F::kExp, 80, 4},
                                                Case{F::kTanh, 1e-4, 4},
                                                Case{F::kErf, 1e-3, 4},
                                                Case{F::kSinh, 80, 8},
                                                Case{F::kSinh, 1e-3, 4},
                                                Case{F::kSoftplus, 80, 4},
                                                Case{F::kAtanh, 1e-3, 6},
                                                Case{F::kAsinh, 1e-3, 6}}) {
    OpTest test = function_test(case_of(function), 101);
    test.cuda = {};  // such arguments have other types' accuracy
    test.gradients = 0;
    test.low = -factor;
    test.high = factor;
    test.tolerance = [&](const graph::OpCall& expected, graph::OutputName, int64_t i) {
      const graph::PointwiseForward<double> op{expected};
      const double value = std::abs(pointwise_element(op, i).value);
      return Tolerance{error * value + (error == 4 && factor > 1e3), value};
    };
    check_on_all_devices(test);
  }
  OpTest powers = function_test(case_of(F::kPow), 101);
  powers.cuda = {};
  powers.gradients = 0;
  powers.value = [](const std::string& tensor, int64_t i) {
    return tensor == "x0" ? 1 + 0.001 * i : 300.5;
  };
  check_on_all_devices(powers);
}

}  // namespace
}  // namespace lockstep::test
