#include "runtime/graph/pointwise_code.h"

#include <vector>

namespace lockstep {
namespace {

using F = PointwiseFunction;

// Gives each instruction the number of its value. A register is free again from the last step on
// that reads it, so that this step may write it.
class Compiler {
 public:
  explicit Compiler(const PointwiseProgram& program)
      : program_(program),
        place_(program.instructions().size(), -1),
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
    if (code_.inputs > PointwiseCode::kMostInputs) return std::nullopt;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!place(i)) return std::nullopt;
    }
    if (!ends_in_result() && !append(F::kIdentity, place_of(program_.result()), 0, 0)) return {};
    return code_;
  }

 private:
  int place_of(int instruction) const {
    return instruction < 0 ? 0 : place_[static_cast<size_t>(instruction)];
  }
  bool ends_in_result() const {
    return code_.steps > 0 && code_.step[code_.steps - 1].to == place_of(program_.result()) &&
           operand_count(program_.instructions().back().function) > 0;
  }

  bool place(size_t i) {
    const PointwiseInstruction& instruction = program_.instructions()[i];
    if (instruction.function == F::kInput) {
      place_[i] = instruction.input;
      return true;
    }
    if (instruction.function == F::kConstant) {
      if (code_.constants == PointwiseCode::kMostConstants) return false;
      code_.constant[code_.constants] = instruction.constant;
      place_[i] = PointwiseCode::kFirstConstant + code_.constants++;
      return true;
    }
    for (const int operand : instruction.operands) {
      if (operand >= 0 && last_use_[static_cast<size_t>(operand)] == static_cast<int>(i) &&
          operand != program_.result())
        release(place_of(operand));
    }
    const auto& operands = instruction.operands;
    if (!append(instruction.function,
                place_of(operands[0]),
                place_of(operands[1]),
                place_of(operands[2])))
      return false;
    place_[i] = code_.step[code_.steps - 1].to;
    return true;
  }

  bool append(F function, int a, int b, int c) {
    size_t number = 0;
    while (number < taken_.size() && taken_[number]) ++number;
    if (number == taken_.size()) taken_.push_back(false);
    taken_[number] = true;
    code_.registers = static_cast<int>(taken_.size());
    if (code_.steps == PointwiseCode::kMostSteps || code_.registers > PointwiseCode::kMostRegisters)
      return false;
    const auto value = [](int place) { return static_cast<uint8_t>(place); };
    code_.step[code_.steps++] = {
        function, value(code_.inputs + static_cast<int>(number)), value(a), value(b), value(c)};
    return true;
  }

  void release(int place) {
    const int number = place - code_.inputs;
    if (number >= 0 && place < PointwiseCode::kFirstConstant)
      taken_[static_cast<size_t>(number)] = false;
  }

  const PointwiseProgram& program_;
  std::vector<int> place_, last_use_;  // by instruction
  std::vector<bool> taken_;            // by register
  PointwiseCode code_;
};

}  // namespace

std::optional<PointwiseCode> compile_pointwise(const PointwiseProgram& program) {
  return Compiler(program).compile();
}

}  // namespace lockstep
