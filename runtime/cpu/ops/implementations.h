#pragma once
// The implementations of ops on the CPU; each op's file defines its own.

#include "runtime/cpu/ops/widened.h"
#include "runtime/exec/op_set.h"

namespace lockstep::cpu {

#define OP(stem, Stem) extern const exec::Implementations kCpu##Stem;
#include "runtime/graph/ops.def"

// As exec::row(), from functions that know floats only: bfloat16 is widened for them (widened.h).
template <auto run, auto workspace_bytes = exec::no_workspace, auto supports = exec::any_op>
constexpr exec::Implementation row(graph::OpKind kind, const char* name) {
  return {kind,
          name,
          [](const graph::OpCall& call) { run_widened(call, exec::of_call<run>()); },
          [](const graph::OpCall& call) {
            return widened_workspace_bytes(call, exec::of_call<workspace_bytes>());
          },
          [](const graph::OpCall& call) -> bool {
            return exec::of_call<supports>()(call.on_floats({}, nullptr));
          }};
}

// From two functions: one for tensors that store floats, one for bfloat16.
template <auto on_floats,
          auto on_halves,
          auto workspace_bytes = exec::no_workspace,
          auto supports = exec::any_op>
constexpr exec::Implementation native_row(graph::OpKind kind, const char* name) {
  return {kind,
          name,
          [](const graph::OpCall& call) {
            stores_bf16(call) ? exec::of_call<on_halves>()(call) : exec::of_call<on_floats>()(call);
          },
          exec::of_call<workspace_bytes>(),
          exec::of_call<supports>()};
}

// Returns the implementations of all ops.
std::span<const exec::Implementations> all_implementations();

}  // namespace lockstep::cpu
