#pragma once
// What kernels run of a pointwise program: its steps with registers given out, of a fixed size, so
// that it can be a kernel's argument.

#include <cstdint>
#include <optional>

#include "runtime/graph/pointwise_program.h"

namespace lockstep {

// to = function(a, b, c). Numbers of values: inputs from 0, registers behind them, constants from
// PointwiseCode::kFirstConstant.
struct PointwiseStep {
  PointwiseFunction function;
  uint8_t to, a, b, c;
};

struct PointwiseCode {
  static constexpr int kMostInputs = PointwiseProgram::kMostInputs + 1;  // with d_y
  static constexpr int kMostRegisters = 24;
  static constexpr int kMostConstants = 32;
  static constexpr int kMostSteps = 128;
  static constexpr int kFirstConstant = 64;
  static_assert(kMostInputs + kMostRegisters <= kFirstConstant);

  int inputs = 0, registers = 0, constants = 0;
  int steps = 0;  // at least one; the last one makes the result
  PointwiseStep step[kMostSteps];
  float constant[kMostConstants];
};

// Of a program without unneeded instructions; none where it is too long.
std::optional<PointwiseCode> compile_pointwise(const PointwiseProgram& program);

}  // namespace lockstep
