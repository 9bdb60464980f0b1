#pragma once
// Chains of elementwise functions as straight-line programs of numbered instructions, each written
// once (SSA form). Plain data, made when a graph is built; the op `pointwise` runs one for each
// element. Booleans are 1 or 0; everything except 0 is true, including NaN.

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::graph {

// Ordered by number of operands. NaN operands give NaN, except in comparisons and in functions of
// booleans.
enum class PointwiseFunction : uint8_t {
  // none
  kInput,     // element of an input
  kConstant,  // a number
  // one: a
  kIdentity,
  kNeg,
  kAbs,
  kSign,  // -1, 0, 1
  kReciprocal,
  kSqrt,
  kExp,
  kLog,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kAsinh,
  kAcosh,
  kAtanh,
  kTanh,
  kSigmoid,
  kErf,
  kSoftplus,  // log(1 + e^a)
  kFloor,
  kCeil,
  kTrunc,  // towards 0
  kRound,  // to the nearest, halves to even
  kNot,
  kIsNan,
  kIsInf,
  // two: a, b
  kAdd,
  kSub,
  kMul,
  kDiv,
  kPow,
  kMin,
  kMax,
  kFmod,  // remainder with the sign of a, as in C
  kMod,   // remainder with the sign of b, as in Python
  kLess,
  kLessOrEqual,
  kEqual,
  kAnd,
  kOr,
  kXor,
  // three: a, b, c
  kWhere,  // b if a is true, else c
  kCount,
};

constexpr int operand_count(PointwiseFunction function) {
  if (function < PointwiseFunction::kIdentity) return 0;
  if (function < PointwiseFunction::kAdd) return 1;
  return function < PointwiseFunction::kWhere ? 2 : 3;
}

struct PointwiseInstruction {
  PointwiseFunction function;
  int operands[3] = {-1, -1, -1};  // numbers of earlier instructions
  int input = -1;                  // for kInput
  float constant = 0;              // for kConstant

  bool operator==(const PointwiseInstruction& other) const;
};

// Instructions are simplified as they are appended: constants are folded, x * 1 and the like are
// left out, and nothing is computed twice. So the returned number may be that of an earlier
// instruction.
class PointwiseProgram {
 public:
  // The max number of inputs of a program in a graph.
  static constexpr int kMaxInputs = 8;

  int input(int number);
  int constant(float value);
  int append(PointwiseFunction function, int a, int b = -1, int c = -1);
  // Sets the instruction whose value is the program's result; by default the one returned last.
  void set_result(int instruction) { result_ = instruction; }
  // Appends another program, whose input i is the instruction inputs[i]; returns its result.
  int append(const PointwiseProgram& program, const std::vector<int>& inputs);

  const std::vector<PointwiseInstruction>& instructions() const { return instructions_; }
  int result() const { return result_; }
  // One more than the largest number of an input; 0 if there are no inputs.
  int inputs() const;
  bool uses(int input) const;
  // Operations per element.
  int functions() const;
  // The program without instructions that the result does not need.
  PointwiseProgram pruned() const;
  // The program with input numbers[i] instead of input i.
  PointwiseProgram renumbered(const std::vector<int>& numbers) const;

  // The program for d_y * d result / d input. Its input 0 is d_y, and its input i + 1 is input i of
  // this program. None if the derivative is zero everywhere, as for a comparison or floor. If the
  // two operands of kMin or kMax are equal, each gets half.
  std::optional<PointwiseProgram> derivative(int input) const;

  // Compares instruction by instruction.
  bool operator==(const PointwiseProgram& other) const = default;

  // Whether the op can run the program and its derivatives: kMaxInputs, and the limits of
  // PointwiseCode.
  bool fits() const;

 private:
  int keep(const PointwiseInstruction& instruction);
  std::optional<float> value_of(int instruction) const;
  int simplified(PointwiseFunction function, int a, int b, int c);
  int simplified_product(int a, int b);
  int simplified_power(int a, float exponent);

  std::vector<PointwiseInstruction> instructions_;
  int result_ = -1;
};

}  // namespace lockstep::graph
