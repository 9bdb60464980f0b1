#pragma once

#include "runtime/base/dtype.h"

namespace lockstep::cuda {

// Whether GELU and its derivative run in the epilogue of a product, on a GPU with this compute
// capability (90 for 9.0). Otherwise a separate kernel applies them; the plan is the same.
//
// Only on Hopper, where fused products are known to be fast. They are slow on Ampere and Ada, and
// no figures of Blackwell are known. Never for floats, whose epilogue may approximate tanh.
inline bool fuses_gelu(int capability, DType dtype) {
  return dtype != DType::kF32 && capability / 10 == 9;
}

}  // namespace lockstep::cuda
