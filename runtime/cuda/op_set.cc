#include "runtime/cuda/op_set.h"

#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/planned_ops.h"

namespace lockstep::cuda {

const exec::OpSet& op_set() {
  static const exec::Implementations all[] = {
#define OP(stem, Stem) kCuda##Stem,
#include "runtime/graph/ops.def"
  };
  static const exec::OpSet ops = [] {
    exec::OpSet set = planned_ops();
    set.implementations = all;
    return set;
  }();
  return ops;
}

}  // namespace lockstep::cuda
