#pragma once
// A pointwise program as kernels run it: its steps with registers assigned, and of a fixed size, so
// that it can be a kernel's argument.

#include <cstdint>
#include <optional>

#include "runtime/graph/pointwise_program.h"

namespace lockstep::graph {

// to = function(a, b, c). Value numbers: inputs from 0, then registers, then constants from
// PointwiseCode::kFirstConstant.
struct PointwiseStep {
  PointwiseFunction function;
  uint8_t to, a, b, c;
};

struct PointwiseCode {
  static constexpr int kMaxInputs = PointwiseProgram::kMaxInputs + 1;  // d_y included
  static constexpr int kMaxRegisters = 24;
  static constexpr int kMaxConstants = 32;
  static constexpr int kMaxSteps = 128;
  static constexpr int kFirstConstant = 64;
  static_assert(kMaxInputs + kMaxRegisters <= kFirstConstant);

  int inputs = 0, registers = 0, constants = 0;
  int steps = 0;  // at least one; the last one computes the result
  PointwiseStep step[kMaxSteps];
  float constant[kMaxConstants];
};

// Compiles a program without unneeded instructions; returns nothing if it exceeds a limit.
std::optional<PointwiseCode> compile_pointwise(const PointwiseProgram& program);

}  // namespace lockstep::graph
