#pragma once
// Maps a DType to the C++ type of a kernel, and a call to the arguments in that type.

#include "runtime/base/check.h"
#include "runtime/base/dtype.h"
#include "runtime/base/half.h"
#include "runtime/graph/op_call.h"

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

// Calls f.template operator()<T>(Arguments<T>{call}) with the C++ type of the op's first input.
template <template <typename> class Arguments, typename F>
void by_type(const graph::OpCall& call, F f) {
  by_type(call.input_dtype(graph::InputName::at(0)),
          [&]<typename T>() { f.template operator()<T>(Arguments<T>{call}); });
}

}  // namespace lockstep::cuda
