#pragma once
// Products of linear layers of bfloat16 by the tiles of bf16x3.h. Operands are bfloat16.

#include "runtime/cpu/matmul/gemm.h"
#include "runtime/cpu/matmul/linear.h"

namespace lockstep::cpu::tiles {

// Scratch memory, in bytes, of the functions below for this shape on `threads` threads; the same on
// every machine. `workspace` is aligned to 64 bytes. With results in floats linear_forward() needs
// as much as gemm().
int64_t gemm_workspace_bytes(int64_t rows, int64_t columns, int64_t depth, int threads);
int64_t linear_workspace_bytes(const graph::LinearShape& shape, int threads);

void gemm(const Gemm& product, void* workspace);

// T: float or BFloat16. x is not transposed.
template <typename T>
void linear_forward(const LinearProduct<T>& op, void* workspace);

}  // namespace lockstep::cpu::tiles
