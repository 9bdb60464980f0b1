#include "runtime/graph/ops/add.h"

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/stored.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/add.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

void add_kernel(AnyStored<graph::Add> stored, int64_t begin, int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR {
    for_each_vector(end - begin, [&](size_t offset, auto access) HWY_ATTR {
      const int64_t i = begin + static_cast<int64_t>(offset);
      access.store(hn::Add(access.load(op.a + i), access.load(op.b + i)), op.y + i);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(add_kernel);

namespace {

template <typename T>
void run(const graph::Add<T>& op) {
  in_parallel(op.n, kGrainElements, HWY_DYNAMIC_DISPATCH(add_kernel), op);
}

constexpr exec::Implementation kRows[] = {
    native_row<run<float>, run<BFloat16>>(graph::OpKind::kAdd, "simd")};

}  // namespace

constinit const exec::Implementations kCpuAdd = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
