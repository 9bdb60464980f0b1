#include "runtime/graph/pointwise_code.h"

#include <vector>

namespace lockstep::graph {
namespace {

using F = PointwiseFunction;

// Assigns a value number to each instruction (linear-scan register allocation). A register is free
// from the last step that reads it, so that step may already write it.
class Compiler {
 public:
  explicit Compiler(const PointwiseProgram& program)
      : program_(program),
        value_(program.instructions().size(), -1),
        last_use_(program.instructions().size(), -1) {
    code_.inputs = program.inputs();
  }

  std::optional<PointwiseCode> compile() {
    const auto& all = program_.instructions();
    for (size_t i = 0; i < all.size(); ++i) {
      for (const int operand : all[i].operands) {
        if (operand >= 0) last_use_[static_cast<size_t>(operand)] = static_cast<int>(i);
      }
    }
    if (code_.inputs > PointwiseCode::kMaxInputs) return std::nullopt;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!assign(i)) return std::nullopt;
    }
    if (!ends_in_result() && !append(F::kIdentity, value_of(program_.result()), 0, 0)) return {};
    return code_;
  }

 private:
  int value_of(int instruction) const {
    return instruction < 0 ? 0 : value_[static_cast<size_t>(instruction)];
  }
  bool ends_in_result() const {
    return code_.steps > 0 && code_.step[code_.steps - 1].to == value_of(program_.result()) &&
           operand_count(program_.instructions().back().function) > 0;
  }

  bool assign(size_t i) {
    const PointwiseInstruction& instruction = program_.instructions()[i];
    if (instruction.function == F::kInput) {
      value_[i] = instruction.input;
      return true;
    }
    if (instruction.function == F::kConstant) {
      if (code_.constants == PointwiseCode::kMaxConstants) return false;
      code_.constant[code_.constants] = instruction.constant;
      value_[i] = PointwiseCode::kFirstConstant + code_.constants++;
      return true;
    }
    for (const int operand : instruction.operands) {
      if (operand >= 0 && last_use_[static_cast<size_t>(operand)] == static_cast<int>(i) &&
          operand != program_.result())
        release(value_of(operand));
    }
    const auto& operands = instruction.operands;
    if (!append(instruction.function,
                value_of(operands[0]),
                value_of(operands[1]),
                value_of(operands[2])))
      return false;
    value_[i] = code_.step[code_.steps - 1].to;
    return true;
  }

  bool append(F function, int a, int b, int c) {
    size_t number = 0;
    while (number < taken_.size() && taken_[number]) ++number;
    if (number == taken_.size()) taken_.push_back(false);
    taken_[number] = true;
    code_.registers = static_cast<int>(taken_.size());
    if (code_.steps == PointwiseCode::kMaxSteps || code_.registers > PointwiseCode::kMaxRegisters)
      return false;
    const auto byte = [](int x) { return static_cast<uint8_t>(x); };
    code_.step[code_.steps++] = {
        function, byte(code_.inputs + static_cast<int>(number)), byte(a), byte(b), byte(c)};
    return true;
  }

  void release(int value) {
    const int number = value - code_.inputs;
    if (number >= 0 && value < PointwiseCode::kFirstConstant)
      taken_[static_cast<size_t>(number)] = false;
  }

  const PointwiseProgram& program_;
  std::vector<int> value_, last_use_;  // by instruction
  std::vector<bool> taken_;            // by register
  PointwiseCode code_;
};

}  // namespace

std::optional<PointwiseCode> compile_pointwise(const PointwiseProgram& program) {
  return Compiler(program).compile();
}

}  // namespace lockstep::graph
