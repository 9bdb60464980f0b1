#include "runtime/cpu/ops/implementations.h"

namespace lockstep::cpu {

std::span<const exec::Implementations> all_implementations() {
  static const exec::Implementations all[] = {
#define OP(stem, Stem) kCpu##Stem,
#include "runtime/graph/ops.def"
  };
  return all;
}

}  // namespace lockstep::cpu
