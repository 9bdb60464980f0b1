#include "runtime/cpu/matmul/epilogue.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/matmul/epilogue.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/matmul/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Finishes columns of one row, from `column` on, which begin at element `at` of y.
template <Activation kKind>
HWY_INLINE void finish_row(
    const Epilogue<float>& e, int64_t column, int64_t columns, int64_t at, float* y) {
  for_each_vector(static_cast<size_t>(columns), [&](size_t j, auto access) HWY_ATTR {
    const int64_t here = at + static_cast<int64_t>(j);
    const size_t n = static_cast<size_t>(column) + j;
    const Vec sum = access.load(y + here);
    access.store(finished<kKind>(e, access, sum, n, here), y + here);
  });
}

void finish_rows(const Epilogue<float>& e,
                 int64_t row_begin,
                 int64_t row_end,
                 int64_t column_begin,
                 int64_t column_end,
                 int64_t stride,
                 float* y) {
  with_activation(e.activation, [&](auto kind) HWY_ATTR {
    for (int64_t i = row_begin; i < row_end; ++i) {
      finish_row<decltype(kind)::value>(
          e, column_begin, column_end - column_begin, i * stride + column_begin, y);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(finish_rows);

void finish_block(const Epilogue<float>& epilogue,
                  int64_t row_begin,
                  int64_t row_end,
                  int64_t column_begin,
                  int64_t column_end,
                  int64_t stride,
                  float* y) {
  HWY_DYNAMIC_DISPATCH(finish_rows)
  (epilogue, row_begin, row_end, column_begin, column_end, stride, y);
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
