#pragma once
// The linear layer of linear.h with the products of bf16x3.h, which defines the order of the sums
// and their accuracy. Otherwise the contract is that of linear.h.

#include <cstdint>

#include "runtime/cpu/matmul/linear.h"

namespace lockstep::cpu::bf16x3 {

int64_t linear_workspace_bytes(const graph::LinearShape& shape, int threads);
void linear_forward(const LinearProduct<float>& op, void* workspace);
void linear_backward_weight(const graph::LinearBackward<float>& op);

}  // namespace lockstep::cpu::bf16x3
