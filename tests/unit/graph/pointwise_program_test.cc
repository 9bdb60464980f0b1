// Catches: a simplification that changes a value, work that is done twice or for nothing,
// programs beyond what kernels can run, which must be refused.
#include "runtime/graph/pointwise_program.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/graph/pointwise_code.h"
#include "runtime/graph/pointwise_values.h"

namespace lockstep::graph {
namespace {

using F = PointwiseFunction;

// The value of one element.
double evaluate(const PointwiseProgram& program, const std::vector<double>& inputs) {
  std::vector<double> values;
  for (const PointwiseInstruction& instruction : program.instructions()) {
    const auto at = [&](int k) {
      const int operand = instruction.operands[k];
      return operand < 0 ? 0 : values[static_cast<size_t>(operand)];
    };
    switch (instruction.function) {
      case F::kInput: values.push_back(inputs.at(static_cast<size_t>(instruction.input))); break;
      case F::kConstant: values.push_back(instruction.constant); break;
      default: values.push_back(pointwise_value<double>(instruction.function, at(0), at(1), at(2)));
    }
  }
  return values.at(static_cast<size_t>(program.result()));
}

TEST(PointwiseProgramTest, WhatIsComputedAlreadyIsNotComputedAgain) {
  PointwiseProgram program;
  const int a = program.append(F::kMul, program.input(0), program.input(1));
  const int b = program.append(F::kMul, program.input(1), program.input(0));
  EXPECT_EQ(a, b);
  program.append(F::kSub, program.append(F::kExp, a), program.append(F::kExp, b));
  EXPECT_EQ(program.pruned().functions(), 3);
}

TEST(PointwiseProgramTest, NeutralOperandsAndConstantsAreFolded) {
  PointwiseProgram program;
  const int x = program.input(0), one = program.constant(1), zero = program.constant(0);
  EXPECT_EQ(program.append(F::kMul, one, x), x);
  EXPECT_EQ(program.append(F::kAdd, x, zero), x);
  EXPECT_EQ(program.append(F::kSub, x, zero), x);
  EXPECT_EQ(program.append(F::kDiv, x, one), x);
  EXPECT_EQ(program.append(F::kPow, x, one), x);
  EXPECT_EQ(program.append(F::kWhere, one, x, zero), x);
  EXPECT_EQ(program.append(F::kNeg, program.append(F::kNeg, x)), x);
  EXPECT_EQ(program.append(F::kAdd, one, program.append(F::kExp, zero)), program.constant(2));
}

TEST(PointwiseProgramTest, PowersKeepTheirValue) {
  for (const float exponent : {-4.0f,
                               -3.5f,
                               -2.0f,
                               -1.0f,
                               -0.5f,
                               0.0f,
                               0.5f,
                               1.0f,
                               1.5f,
                               2.0f,
                               3.0f,
                               5.0f,
                               7.0f,
                               8.0f,
                               9.0f}) {
    PointwiseProgram program;
    program.append(F::kPow, program.input(0), program.constant(exponent));
    EXPECT_NEAR(evaluate(program, {1.7}) / std::pow(1.7, exponent), 1, 1e-12) << exponent;
  }
}

TEST(PointwiseProgramTest, DerivativesAreExpressionsOfWhatTheyNeed) {
  PointwiseProgram program;  // 3 x0 + floor(x1)
  const int product = program.append(F::kMul, program.input(0), program.constant(3));
  program.append(F::kAdd, product, program.append(F::kFloor, program.input(1)));
  const auto slope = program.derivative(0);
  ASSERT_TRUE(slope.has_value());
  EXPECT_EQ(slope->functions(), 1);
  EXPECT_EQ(slope->inputs(), 1);  // d_y alone
  EXPECT_EQ(evaluate(*slope, {2}), 6);
  EXPECT_FALSE(program.derivative(1).has_value());
  EXPECT_FALSE(program.derivative(2).has_value());
}

TEST(PointwiseProgramTest, WhatKernelsCannotRunDoesNotFit) {
  PointwiseProgram many;
  int sum = many.input(0);
  for (int k = 1; k <= PointwiseProgram::kMaxInputs; ++k)
    sum = many.append(F::kAdd, sum, many.input(k));
  EXPECT_FALSE(many.fits());

  PointwiseProgram lengthy;
  int x = lengthy.input(0);
  for (int k = 0; k < PointwiseCode::kMaxSteps; ++k) x = lengthy.append(F::kSin, x);
  EXPECT_TRUE(compile_pointwise(lengthy).has_value());
  EXPECT_FALSE(lengthy.fits());  // because of its derivative
}

TEST(PointwiseProgramTest, RegistersAreUsedAgain) {
  PointwiseProgram program;
  int x = program.input(0);
  for (int k = 0; k < 40; ++k) x = program.append(F::kAdd, program.append(F::kExp, x), x);
  const auto code = compile_pointwise(program);
  ASSERT_TRUE(code.has_value());
  EXPECT_LE(code->registers, 2);
}

}  // namespace
}  // namespace lockstep::graph
