#include "runtime/cpu/row_parts.h"

#include "runtime/cpu/in_parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/row_parts.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Columns [begin, end).
void sum_parts_kernel(
    const float* partial, int64_t parts, int64_t stride, float* sum, int64_t begin, int64_t end) {
  for_each_vector(end - begin, [&](size_t offset, auto access) HWY_ATTR {
    const int64_t i = begin + static_cast<int64_t>(offset);
    Vec total = access.load(partial + i);
    for (int64_t part = 1; part < parts; ++part)
      total = hn::Add(total, access.load(partial + part * stride + i));
    access.store(total, sum + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(sum_parts_kernel);

void sum_parts(
    const float* partial, const RowParts& parts, int64_t stride, int64_t columns, float* sum) {
  in_parallel(columns,
              grain_rows(parts.count),
              HWY_DYNAMIC_DISPATCH(sum_parts_kernel),
              partial,
              parts.count,
              stride,
              sum);
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
