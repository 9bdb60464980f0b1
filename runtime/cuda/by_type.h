#pragma once
// From a DType to the C++ type of a kernel.

#include "runtime/base/check.h"
#include "runtime/base/dtype.h"
#include "runtime/base/half.h"

namespace lockstep::cuda {

// Calls f.template operator()<T>() for the type that `dtype` stores.
template <typename F>
void by_type(DType dtype, F f) {
  switch (dtype) {
    case DType::kF32: return f.template operator()<float>();
    case DType::kBF16: return f.template operator()<BFloat16>();
    case DType::kF16: return f.template operator()<Float16>();
    default: LOCKSTEP_REQUIRE(!"a type that there are kernels for");
  }
}

}  // namespace lockstep::cuda
