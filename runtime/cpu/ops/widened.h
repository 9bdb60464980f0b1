#pragma once
// Ops on bfloat16 by kernels that know floats only. Operands of 16 bits are copied to floats in the
// workspace, and what the kernel writes there is rounded once. So whatever trains in FP32 trains in
// BF16; kernels that read and write 16 bits themselves need less memory and time.

#include <cstddef>
#include <cstdint>

#include "runtime/base/half.h"
#include "runtime/graph/op_call.h"

namespace lockstep::cpu {

// Whether any of the op's arrays is bfloat16.
bool stores_bf16(const graph::OpCall& call);

// What run_widened() needs for an op, besides what its kernel needs.
size_t widened_workspace_bytes(const graph::OpCall& call,
                               size_t (*workspace_bytes)(const graph::OpCall& call));

// Runs a kernel; arrays of bfloat16 are given to it as floats. The kernel must write all of an
// output, unless the output lies over an input.
void run_widened(const graph::OpCall& call, void (*run)(const graph::OpCall& call));

// Rounds n floats to bfloat16, on all threads.
void round_floats(const float* from, int64_t n, BFloat16* to);

// Rounds floats (rows, columns) to bfloat16 in place. A row still begins at the same address, so
// rows are 2 * columns numbers of bfloat16 apart.
void round_rows(float* x, int64_t rows, int64_t columns);

}  // namespace lockstep::cpu
