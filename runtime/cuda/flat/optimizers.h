#pragma once
// Kernels of optimizer steps on slices of the flat buffers.

#include <span>

#include "runtime/cuda/stream.h"
#include "runtime/exec/optimizers/list.h"

namespace lockstep::cuda {

// A slice as the kernel reads it from a table on the device.
struct PlacedSlice {
  const void* update;  // on the device: the alternative itself
  float* parameters;
  float* gradients;
  float* first_moment;
  float* second_moment;
  void* stored;
  int64_t elements;
  uint32_t first_block;  // of the launch
  uint16_t kind;         // which alternative of OptimizerUpdate
  bool vectors;          // all arrays begin where vectors may
};

// Describes slices for one launch, `table` having as many entries. Of which kind each is says the
// update of its group; the numbers will be those in `device_updates`, an array on the device
// that is like `updates`. Returns the blocks that the launch takes.
uint32_t place_slices(std::span<const OptimizerSlice> slices,
                      std::span<const OptimizerUpdate> updates,
                      const OptimizerUpdate* device_updates,
                      PlacedSlice* table);

// Updates all slices of a table on the device by the formulas of exec/optimizers/, and writes the
// new parameters, rounded to T, to `stored`: one launch, one pass over memory. For T = float
// `stored` is null. T is float, BFloat16 or Float16.
template <typename T>
void optimizer_update(const PlacedSlice* table, int count, uint32_t blocks, Stream stream);

}  // namespace lockstep::cuda
