#pragma once
// Maps a DType to the C++ type of a kernel.

#include "runtime/base/check.h"
#include "runtime/base/dtype.h"
#include "runtime/base/half.h"

namespace lockstep::cuda {

// Calls f.template operator()<T>() with the C++ type of the elements of `dtype`.
template <typename F>
void by_type(DType dtype, F f) {
  switch (dtype) {
    case DType::kF32: return f.template operator()<float>();
    case DType::kBF16: return f.template operator()<BFloat16>();
    case DType::kF16: return f.template operator()<Float16>();
    default: LOCKSTEP_REQUIRE(!"a type with kernels");
  }
}

}  // namespace lockstep::cuda
