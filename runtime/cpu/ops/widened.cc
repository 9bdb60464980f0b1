#include "runtime/cpu/ops/widened.h"

#include <algorithm>
#include <new>
#include <span>

#include "runtime/base/error.h"
#include "runtime/cpu/in_parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/widened.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

template <typename From, typename To>
HWY_INLINE void convert(const From* from, To* to, int64_t begin, int64_t end) {
  for_each_vector(static_cast<size_t>(end - begin), [&](size_t i, auto access) HWY_ATTR {
    access.store(access.load(from + begin + i), to + begin + i);
  });
}

void widen_kernel(const BFloat16* from, float* to, int64_t begin, int64_t end) {
  convert(from, to, begin, end);
}
void round_kernel(const float* from, BFloat16* to, int64_t begin, int64_t end) {
  convert(from, to, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(widen_kernel);
HWY_EXPORT(round_kernel);

namespace {

constexpr size_t kAlignment = 64;
size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool is_bf16(const graph::OperandArray& array) {
  return array.dtype == DType::kBF16 && array.elements > 0;
}

// Calls f(array, whether it is an input) for each one of bfloat16.
template <typename F>
void each_bf16(const graph::OpCall& call, F f) {
  for (size_t i = 0; i < call.arrays(); ++i) {
    const graph::OperandArray array = call.array(i);
    if (is_bf16(array)) f(array, call.is_input(i));
  }
}

size_t count_bf16(const graph::OpCall& call) {
  size_t count = 0;
  each_bf16(call, [&](const graph::OperandArray&, bool) { ++count; });
  return count;
}

size_t list_bytes(size_t arrays) { return aligned(arrays * sizeof(graph::FloatCopy)); }

}  // namespace

bool stores_bf16(const graph::OpCall& call) { return count_bf16(call) > 0; }

size_t widened_workspace_bytes(const graph::OpCall& call,
                               size_t (*workspace_bytes)(const graph::OpCall& call)) {
  const size_t count = count_bf16(call);
  if (count == 0) return workspace_bytes(call);
  size_t bytes = list_bytes(count) + workspace_bytes(call.on_floats({}, nullptr));
  each_bf16(call, [&](const graph::OperandArray& array, bool) {
    bytes += aligned(static_cast<size_t>(array.elements) * sizeof(float));
  });
  return bytes;
}

void run_widened(const graph::OpCall& call, void (*run)(const graph::OpCall& call)) {
  const size_t count = count_bf16(call);
  if (count == 0) return run(call);
  std::byte* free = call.workspace();
  auto* const list = reinterpret_cast<graph::FloatCopy*>(free);
  free += list_bytes(count);
  size_t copies = 0;
  each_bf16(call, [&](const graph::OperandArray& array, bool input) {
    const std::span known(list, copies);
    // One copy of arrays that lie over each other, and of one that the op has twice.
    if (std::ranges::find(known, array.data, &graph::FloatCopy::of) != known.end()) return;
    new (&list[copies++]) graph::FloatCopy{array.data, free};
    if (input)
      in_parallel(array.elements,
                  kGrainElements,
                  HWY_DYNAMIC_DISPATCH(widen_kernel),
                  reinterpret_cast<const BFloat16*>(array.data),
                  reinterpret_cast<float*>(free));
    free += aligned(static_cast<size_t>(array.elements) * sizeof(float));
  });
  const std::span<const graph::FloatCopy> made(list, copies);
  run(call.on_floats(made, free));
  each_bf16(call, [&](const graph::OperandArray& array, bool input) {
    if (input) return;
    const auto copy = std::ranges::find(made, array.data, &graph::FloatCopy::of);
    LOCKSTEP_CHECK(copy != made.end());
    round_floats(reinterpret_cast<const float*>(copy->floats),
                 array.elements,
                 reinterpret_cast<BFloat16*>(array.data));
  });
}

void round_floats(const float* from, int64_t n, BFloat16* to) {
  in_parallel(n, kGrainElements, HWY_DYNAMIC_DISPATCH(round_kernel), from, to);
}

void round_rows(float* x, int64_t rows, int64_t columns) {
  const auto round = HWY_DYNAMIC_DISPATCH(round_kernel);
  parallel_for(rows, grain_rows(columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* const from = x + row * columns;
      round(from, reinterpret_cast<BFloat16*>(from), 0, columns);
    }
  });
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
