#include "runtime/cpu/matmul/linear_tiles.h"

#include <algorithm>
#include <type_traits>

#include "runtime/base/error.h"
#include "runtime/cpu/matmul/bf16x3_operands.h"
#include "runtime/cpu/stored.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/matmul/linear_tiles.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/matmul/linear_finish-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// The results of some rows and columns, from their sums (M, N).
void finish_sums_kernel(AnyStored<LinearProduct> stored,
                        const float* sums,
                        Range rows,
                        Range columns) {
  stored.with([&](const auto& op) HWY_ATTR {
    with_finish(op, [&](auto finish) HWY_ATTR {
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        const int64_t first = i * op.shape.outputs + columns.begin;
        for_each_vector(static_cast<size_t>(columns.size()), [&](size_t j, auto access) HWY_ATTR {
          const size_t at = static_cast<size_t>(first) + j;
          finish(access, access.load(sums + at), static_cast<size_t>(columns.begin) + j, at);
        });
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(finish_sums_kernel);

namespace tiles {
namespace {

using Numbers = BFloat16;

// Sums that become the result while they are in the cache.
template <typename T>
struct Sums {
  float* row(int64_t i) const { return sums + i * op.shape.outputs; }
  int64_t stride() const { return op.shape.outputs; }
  void finish(Range rows, Range columns) const {
    if (std::is_same_v<T, float> && op.pre == nullptr && op.saved == nullptr && op.epilogue.empty())
      return;
    HWY_DYNAMIC_DISPATCH(finish_sums_kernel)(op, sums, rows, columns);
  }
  const LinearProduct<T>& op;
  float* sums;  // (M, N); may be y
};

int64_t sums_bytes(const graph::LinearShape& shape) {
  return round_up(shape.rows * shape.outputs * static_cast<int64_t>(sizeof(float)), 64);
}

GemmOperand transposed(GemmOperand operand) {
  operand.transposed = !operand.transposed;
  return operand;
}

}  // namespace

int64_t gemm_workspace_bytes(int64_t rows, int64_t columns, int64_t depth, int threads) {
  return split_workspace_bytes<Numbers>(rows, columns, ceil_div(depth, kTileDepth), threads);
}

int64_t linear_workspace_bytes(const graph::LinearShape& shape, int threads) {
  return sums_bytes(shape) + gemm_workspace_bytes(shape.rows, shape.outputs, shape.inputs, threads);
}

void gemm(const Gemm& p, void* workspace) { multiply_matrices<Numbers>(p, workspace); }

template <typename T>
void linear_forward(const LinearProduct<T>& op, void* workspace) {
  LOCKSTEP_CHECK(reinterpret_cast<uintptr_t>(workspace) % 64 == 0);
  const auto [rows, inputs, outputs] = op.shape;
  if (rows == 0 || outputs == 0) return;
  LOCKSTEP_CHECK(inputs > 0);
  float* sums = static_cast<float*>(workspace);
  auto* products = static_cast<std::byte*>(workspace);
  if constexpr (std::is_same_v<T, float>) {
    sums = op.y;
  } else {
    products += sums_bytes(op.shape);
  }
  multiply_all(DenseA<Numbers>{op.x, inputs},
               DenseB<Numbers>{transposed(op.w), inputs},
               Sums<T>{op, sums},
               rows,
               outputs,
               ceil_div(inputs, kTileDepth),
               /*accumulate=*/false,
               products);
}
template void linear_forward(const LinearProduct<float>& op, void* workspace);
template void linear_forward(const LinearProduct<BFloat16>& op, void* workspace);

}  // namespace tiles
}  // namespace lockstep::cpu
#endif  // HWY_ONCE
