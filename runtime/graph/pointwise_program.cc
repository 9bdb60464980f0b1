#include "runtime/graph/pointwise_program.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/graph/pointwise_code.h"
#include "runtime/graph/pointwise_values.h"

namespace lockstep::graph {
namespace {

using F = PointwiseFunction;

bool is_commutative(F function) {
  return function == F::kAdd || function == F::kMul || function == F::kEqual ||
         function == F::kAnd || function == F::kOr || function == F::kXor;
}

}  // namespace

bool PointwiseInstruction::operator==(const PointwiseInstruction& other) const {
  return function == other.function && std::equal(operands, operands + 3, other.operands) &&
         input == other.input &&
         std::bit_cast<uint32_t>(constant) == std::bit_cast<uint32_t>(other.constant);
}

// ---- Building ----

int PointwiseProgram::keep(const PointwiseInstruction& instruction) {
  const auto same = std::find(instructions_.begin(), instructions_.end(), instruction);
  result_ = static_cast<int>(same - instructions_.begin());
  if (same == instructions_.end()) instructions_.push_back(instruction);
  return result_;
}

int PointwiseProgram::input(int number) {
  LOCKSTEP_CHECK(number >= 0);
  return keep({.function = F::kInput, .input = number});
}

int PointwiseProgram::constant(float value) {
  return keep({.function = F::kConstant, .constant = value});
}

int PointwiseProgram::append(F function, int a, int b, int c) {
  const int count = operand_count(function), size = static_cast<int>(instructions_.size());
  const int operands[3] = {a, b, c};
  for (int k = 0; k < 3; ++k)
    LOCKSTEP_CHECK(k < count ? operands[k] >= 0 && operands[k] < size : operands[k] == -1,
                   "operand {} of function {} is {} ",
                   k,
                   static_cast<int>(function),
                   operands[k]);
  LOCKSTEP_CHECK(count > 0);
  const int simple = simplified(function, a, b, c);
  if (simple >= 0) return result_ = simple;
  if (is_commutative(function) && a > b) std::swap(a, b);
  return keep({.function = function, .operands = {a, b, c}});
}

int PointwiseProgram::append(const PointwiseProgram& program, const std::vector<int>& inputs) {
  std::vector<int> appended;
  for (const PointwiseInstruction& instruction : program.instructions_) {
    if (instruction.function == F::kInput) {
      appended.push_back(inputs.at(static_cast<size_t>(instruction.input)));
    } else if (instruction.function == F::kConstant) {
      appended.push_back(constant(instruction.constant));
    } else {
      const auto at = [&](int operand) {
        return operand < 0 ? -1 : appended[static_cast<size_t>(operand)];
      };
      const auto& operands = instruction.operands;
      appended.push_back(
          append(instruction.function, at(operands[0]), at(operands[1]), at(operands[2])));
    }
  }
  return result_ = appended.at(static_cast<size_t>(program.result_));
}

// ---- Simplification ----

std::optional<float> PointwiseProgram::value_of(int instruction) const {
  if (instruction < 0) return std::nullopt;
  const PointwiseInstruction& of = instructions_[static_cast<size_t>(instruction)];
  if (of.function != F::kConstant) return std::nullopt;
  return of.constant;
}

// Returns an existing instruction with the same value, or -1.
int PointwiseProgram::simplified(F function, int a, int b, int c) {
  const std::optional<float> x = value_of(a), y = value_of(b), z = value_of(c);
  const int count = operand_count(function);
  if (x && (count < 2 || y) && (count < 3 || z))
    return constant(pointwise_value<float>(function, *x, y.value_or(0), z.value_or(0)));
  switch (function) {
    case F::kIdentity: return a;
    case F::kNeg: {
      const PointwiseInstruction& of = instructions_[static_cast<size_t>(a)];
      return of.function == F::kNeg ? of.operands[0] : -1;
    }
    case F::kAdd:
      if (x == 0.0f) return b;
      return y == 0.0f ? a : -1;
    case F::kSub:
      if (x == 0.0f) return append(F::kNeg, b);
      return y == 0.0f ? a : -1;
    case F::kMul: return simplified_product(a, b);
    case F::kDiv:
      if (x == 1.0f) return append(F::kReciprocal, b);
      // A power of two has an exact inverse.
      if (y && *y != 0 && std::abs(std::ilogb(*y)) < 100 &&
          std::ldexp(1.0f, std::ilogb(*y)) == std::abs(*y))
        return append(F::kMul, a, constant(1 / *y));
      return -1;
    case F::kPow: return y ? simplified_power(a, *y) : -1;
    case F::kWhere:
      if (x) return *x != 0 ? b : c;
      return b == c ? b : -1;
    default: return -1;
  }
}

int PointwiseProgram::simplified_product(int a, int b) {
  if (value_of(a)) std::swap(a, b);
  const std::optional<float> factor = value_of(b);
  if (!factor) return -1;
  if (*factor == 1) return a;
  return *factor == -1 ? append(F::kNeg, a) : -1;
}

// Small integer exponents become products, and 0.5 becomes a square root.
int PointwiseProgram::simplified_power(int a, float exponent) {
  if (exponent == 0) return constant(1);
  if (exponent == 0.5f) return append(F::kSqrt, a);
  if (exponent < 0 && exponent >= -4 && 2 * exponent == std::floor(2 * exponent)) {
    const int inverse = simplified_power(a, -exponent);
    return inverse < 0 ? -1 : append(F::kReciprocal, inverse);
  }
  if (exponent < 0 || exponent > 8 || exponent != std::floor(exponent)) return -1;
  int power = -1, square = a;
  for (int rest = static_cast<int>(exponent); rest > 0; rest /= 2) {
    if (rest % 2 == 1) power = power < 0 ? square : append(F::kMul, power, square);
    if (rest > 1) square = append(F::kMul, square, square);
  }
  return power;
}

// ---- Whole programs ----

int PointwiseProgram::inputs() const {
  int count = 0;
  for (const PointwiseInstruction& instruction : instructions_)
    count = std::max(count, instruction.input + 1);
  return count;
}

bool PointwiseProgram::uses(int input) const {
  const std::vector<PointwiseInstruction> needed = pruned().instructions_;
  return std::any_of(
      needed.begin(), needed.end(), [=](const auto& each) { return each.input == input; });
}

int PointwiseProgram::functions() const {
  const auto is_function = [](const auto& each) { return operand_count(each.function) > 0; };
  return static_cast<int>(std::count_if(instructions_.begin(), instructions_.end(), is_function));
}

PointwiseProgram PointwiseProgram::pruned() const {
  LOCKSTEP_CHECK(result_ >= 0, "an empty program ");
  std::vector<bool> needed(instructions_.size(), false);
  needed[static_cast<size_t>(result_)] = true;
  for (size_t i = instructions_.size(); i-- > 0;) {
    for (const int operand : instructions_[i].operands) {
      if (needed[i] && operand >= 0) needed[static_cast<size_t>(operand)] = true;
    }
  }
  PointwiseProgram program;
  std::vector<int> appended(instructions_.size(), -1);
  for (size_t i = 0; i < instructions_.size(); ++i) {
    if (!needed[i]) continue;
    PointwiseInstruction instruction = instructions_[i];
    for (int& operand : instruction.operands) {
      if (operand >= 0) operand = appended[static_cast<size_t>(operand)];
    }
    appended[i] = program.keep(instruction);
  }
  program.result_ = appended[static_cast<size_t>(result_)];
  return program;
}

PointwiseProgram PointwiseProgram::renumbered(const std::vector<int>& numbers) const {
  PointwiseProgram program;
  std::vector<int> inputs(numbers.size(), -1);
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (uses(static_cast<int>(i))) inputs[i] = program.input(numbers[i]);
  }
  program.append(pruned(), inputs);
  return program.pruned();
}

bool PointwiseProgram::fits() const {
  if (inputs() > kMaxInputs || !compile_pointwise(pruned())) return false;
  for (int k = 0; k < inputs(); ++k) {
    const std::optional<PointwiseProgram> slope = derivative(k);
    if (slope && !compile_pointwise(*slope)) return false;
  }
  return true;
}

}  // namespace lockstep::graph
