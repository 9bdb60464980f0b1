#pragma once
// Chains of elementwise functions, as straight-line programs of numbered instructions, each of
// which is written once (SSA form). Plain data, made when a graph is built; the op `pointwise` runs
// one for each element. Truth is 1 or 0, and whatever is not 0 is true, NaN too.

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

// Ordered by how many operands they have. NaN among the operands gives NaN, but for comparisons and
// what works on truth.
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
  kFmod,  // remainder with the sign of a, as C has it
  kMod,   // remainder with the sign of b, as Python has it
  kLess,
  kLessOrEqual,
  kEqual,
  kAnd,
  kOr,
  kXor,
  // three: a, b, c
  kWhere,  // b where a is true, else c
  kCount,
};

constexpr int operand_count(PointwiseFunction function) {
  if (function < PointwiseFunction::kIdentity) return 0;
  if (function < PointwiseFunction::kAdd) return 1;
  return function < PointwiseFunction::kWhere ? 2 : 3;
}

struct PointwiseInstruction {
  PointwiseFunction function;
  int operands[3] = {-1, -1, -1};  // numbers of instructions before this one
  int input = -1;                  // of kInput
  float constant = 0;              // of kConstant

  bool operator==(const PointwiseInstruction& other) const;
};

// What is appended is simplified on the way: constants are folded, x * 1 and the like left out, and
// what is computed already is not computed again. So the number that is returned may be that of an
// earlier instruction.
class PointwiseProgram {
 public:
  // What a program of a graph may have at most.
  static constexpr int kMostInputs = 8;

  int input(int number);
  int constant(float value);
  int append(PointwiseFunction function, int a, int b = -1, int c = -1);
  // The instruction whose value is the program's; without it the one that was returned last.
  void set_result(int instruction) { result_ = instruction; }
  // Appends another program whose input i is the instruction inputs[i]; returns its result.
  int append(const PointwiseProgram& program, const std::vector<int>& inputs);

  const std::vector<PointwiseInstruction>& instructions() const { return instructions_; }
  int result() const { return result_; }
  // One more than the largest number of an input; 0 without inputs.
  int inputs() const;
  bool uses(int input) const;
  // Functions that an element takes.
  int functions() const;
  // Without the instructions that the result does not need.
  PointwiseProgram pruned() const;
  // The same with input numbers[i] in the place of input i.
  PointwiseProgram renumbered(const std::vector<int>& numbers) const;

  // The value of one element, for tests and for constants.
  double evaluate(const std::vector<double>& inputs) const;

  // The program of d_y * d result / d input, whose input 0 is d_y and whose input i + 1 is input i of
  // this one. None where it is zero everywhere, as that of a comparison or of floor is. Where two
  // operands of kMin or kMax are equal each gets half.
  std::optional<PointwiseProgram> derivative(int input) const;

  // Instruction by instruction.
  bool operator==(const PointwiseProgram& other) const = default;

  // Whether the op can run it and its derivatives: kMostInputs, and the limits of PointwiseCode.
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

// The consumer with the producer's result in the place of its input `input`. Inputs of the fused
// program: the consumer's, with the same numbers (`input` itself is left over), and then the
// producer's, counted from consumer.inputs(). None where that does not fit.
std::optional<PointwiseProgram> fuse(const PointwiseProgram& producer,
                                     const PointwiseProgram& consumer,
                                     int input);

}  // namespace lockstep
