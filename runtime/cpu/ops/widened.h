#pragma once
// Ops on bfloat16 by kernels that know floats only. Operands of 16 bits are copied to floats in the
// workspace, and what the kernel writes there is rounded once. So whatever trains in FP32 trains in
// BF16; kernels that read and write 16 bits themselves need less memory and time.

#include <cstddef>
#include <cstdint>

#include "runtime/graph/op_call.h"

namespace lockstep::cpu {

// Whether any of the op's arrays is bfloat16.
bool stores_bf16(const graph::OpCall& call);

// What run_widened() needs for an op, besides what its kernel needs.
size_t widened_workspace_bytes(const graph::OpCall& call,
                               size_t (*workspace_bytes)(const graph::OpCall& call));

// Runs a kernel, on floats where the op's arrays are bfloat16. An output has the values that the
// kernel does not write only if it lies over an input, as one on 16 bits may.
void run_widened(const graph::OpCall& call, void (*run)(const graph::OpCall& call));

// Rounds floats (rows, columns) to bfloat16 in place. Rows begin where they did, so the stride is
// 2 columns of bfloat16.
void round_rows(float* x, int64_t rows, int64_t columns);

}  // namespace lockstep::cpu
