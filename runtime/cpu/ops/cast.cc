#include "runtime/graph/ops/cast.h"

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/words.h"

namespace lockstep::cpu {
namespace {

// To floats: bfloat16 is rounded to as it is from other kernels.
void run(const graph::OpCall& call) {
  copy_words(call.input<float>(graph::CastIn::kX),
             call.input_shape(graph::CastIn::kX).elements(),
             call.output<float>(graph::CastOut::kY));
}

constexpr exec::Implementation kRows[] = {row<run>(graph::OpKind::kCast, "copy")};

}  // namespace

constinit const exec::Implementations kCpuCast = kRows;

}  // namespace lockstep::cpu
