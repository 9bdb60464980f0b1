#pragma once

#include <cstdint>

namespace lockstep::graph {

enum class OpKind : uint8_t {
#define KIND(Kind, name) k##Kind,
#include "runtime/graph/ops.def"
  kCount,
};

// "layer_norm_backward".
constexpr const char* name_of(OpKind kind) {
  constexpr const char* kNames[] = {
#define KIND(Kind, name) #name,
#include "runtime/graph/ops.def"
  };
  return kNames[static_cast<int>(kind)];
}

}  // namespace lockstep::graph
