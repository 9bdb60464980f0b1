#pragma once
// Whether products of bfloat16 use the tiles of bf16x3.h. Tiles and the multiply-adds of gemm.h add
// in different orders, so this decides the bits of a run in bfloat16.

#include "runtime/graph/op_call.h"

namespace lockstep::cpu::tiles {

// Whether this process multiplies tiles by a matrix unit that gives the bits of the portable
// kernels, which is checked once.
bool available();
// The same as Implementation::available().
inline bool available_for(const graph::OpCall& /*call*/) { return available(); }

// While it lives, available() is `chosen`: without a matrix unit, tiles are multiplied by the
// portable kernels. For tests; no other thread may call available() when it begins or ends.
class ScopedTiles {
 public:
  explicit ScopedTiles(bool chosen);
  ~ScopedTiles();
  ScopedTiles(const ScopedTiles&) = delete;
  ScopedTiles& operator=(const ScopedTiles&) = delete;

 private:
  bool before_;
};

}  // namespace lockstep::cpu::tiles
