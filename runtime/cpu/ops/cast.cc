#include "runtime/graph/ops/cast.h"

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/words.h"

namespace lockstep::cpu {
namespace {

void run_to_floats(const graph::OpCall& call) {
  copy_words(call.input<float>(graph::CastIn::kX),
             call.input_shape(graph::CastIn::kX).elements(),
             call.output<float>(graph::CastOut::kY));
}

void run_to_bf16(const graph::OpCall& call) {
  round_floats(call.input<float>(graph::CastIn::kX),
               call.input_shape(graph::CastIn::kX).elements(),
               call.output<BFloat16>(graph::CastOut::kY));
}

constexpr exec::Implementation kRows[] = {
    native_row<run_to_floats, run_to_bf16>(graph::OpKind::kCast, "copy")};

}  // namespace

constinit const exec::Implementations kCpuCast = kRows;

}  // namespace lockstep::cpu
