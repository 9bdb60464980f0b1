#pragma once
// Kernels of optimizer steps on slices of the flat buffers.

#include <span>

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
  void* first_moment;
  void* second_moment;
  void* stored;
  const exec::MomentRounding* rounding;  // in device memory; null if moments are floats
  int64_t elements;
  uint32_t parameter, first_element;
  uint32_t first_block;  // index within the launch
  uint16_t kind;         // index of the alternative of OptimizerUpdate
  bool vectors;          // all arrays are aligned for vectors
};

// Fills `table`, which has as many entries as `slices`, for one launch. The update of a slice's
// group determines its kind. `device_updates` will have the contents of `updates` in device memory,
// and `device_rounding` the rounding of moments. Returns the number of blocks of the launch.
uint32_t place_slices(std::span<const exec::OptimizerSlice> slices,
                      std::span<const exec::OptimizerUpdate> updates,
                      const exec::OptimizerUpdate* device_updates,
                      PlacedSlice* table,
                      const exec::MomentRounding* device_rounding = nullptr);

// Updates all slices of a table in device memory by the formulas of exec/optimizers/, and writes
// the new parameters, rounded to T, to `stored`: one launch, one pass over memory. For T = float,
// `stored` is null. T is float, BFloat16 or Float16; Moment, the type of all stored moments, is
// float or BFloat16. `gate`: in device memory; null: the update is not gated.
template <typename T, typename Moment = float>
void optimizer_update(
    const PlacedSlice* table, int count, uint32_t blocks, const GateState* gate, Stream stream);

}  // namespace lockstep::cuda
