#pragma once
// How a kernel takes the arguments of an op whose tensors store floats or bfloat16.

#include "runtime/base/half.h"

namespace lockstep::cpu {

// One of two structs of arguments, borrowed. A kernel that is compiled once for each instruction
// set, and so cannot be a template, takes this and is compiled for both types inside:
//   void add_kernel(AnyStored<graph::Add> stored, int64_t begin, int64_t end) {
//     stored.with([&](const auto& op) HWY_ATTR { ... });
//   }
template <template <typename> class Arguments>
class AnyStored {
 public:
  AnyStored(const Arguments<float>& op) : floats_(&op) {}
  AnyStored(const Arguments<BFloat16>& op) : halves_(&op) {}

  template <typename F>
  void with(F f) const {
    floats_ != nullptr ? f(*floats_) : f(*halves_);
  }

 private:
  const Arguments<float>* floats_ = nullptr;
  const Arguments<BFloat16>* halves_ = nullptr;
};

}  // namespace lockstep::cpu
