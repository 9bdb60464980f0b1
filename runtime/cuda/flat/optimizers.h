#pragma once
// Kernels of optimizer steps on slices of the flat buffers.

#include <span>

#include "runtime/base/moment_block.h"
#include "runtime/cuda/stream.h"
#include "runtime/exec/optimizers/list.h"

namespace lockstep::cuda {

// What updates that pass the gate (exec::UpdateGate) read, in device memory.
struct GateState {
  float gradient_scale;  // multiplies every gradient, in place of the constants' own
  uint32_t open;         // 0: the updates do nothing
};

// A slice as the kernel reads it from a table in device memory.
struct PlacedSlice {
  const void* update;  // the struct of `kind`, in device memory
  float* parameters;
  float* gradients;
  void* moments[exec::kMaxMoments];  // null from the first one that is not kept
  void* stored;
  int64_t elements;
  uint32_t parameter, first_element;
  uint32_t first_block;    // index within the launch
  uint16_t kind;           // index of the alternative of OptimizerUpdate
  uint8_t square_moments;  // see exec::OptimizerSlice
  bool vectors;            // all arrays are aligned for vectors
};

// Fills `table`, which has as many entries as `slices`, for one launch. The update of a slice's
// group determines its kind. `device_updates` will have the contents of `updates` in device memory.
// Returns the number of blocks of the launch.
uint32_t place_slices(std::span<const exec::OptimizerSlice> slices,
                      std::span<const exec::OptimizerUpdate> updates,
                      const exec::OptimizerUpdate* device_updates,
                      PlacedSlice* table);

// Updates all slices of a table in device memory by the formulas of exec/optimizers/, and writes
// the new parameters, rounded to T, to `stored`: one launch, one pass over memory. For T = float,
// `stored` is null. T is float, BFloat16 or Float16; Moment, the type of all stored moments, is
// float, BFloat16 or MomentBlock. `gate`: in device memory; null: the update is not gated.
// `rounding`: in device memory, for moments of BFloat16; otherwise null.
template <typename T, typename Moment = float>
void optimizer_update(const PlacedSlice* table,
                      int count,
                      uint32_t blocks,
                      const GateState* gate,
                      Stream stream,
                      const exec::MomentRounding* rounding = nullptr);

}  // namespace lockstep::cuda
