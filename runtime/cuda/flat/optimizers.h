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
  void* first_moment;
  void* second_moment;
  void* stored;
  const MomentRounding* rounding;  // on the device; null where moments are floats
  int64_t elements;
  uint32_t parameter, first_element;
  uint32_t first_block;  // of the launch
  uint16_t kind;         // which alternative of OptimizerUpdate
  bool vectors;          // all arrays begin where vectors may
};

// Describes slices for one launch, `table` having as many entries. Of which kind each is says the
// update of its group; the numbers will be those in `device_updates`, an array on the device
// that is like `updates`, and what rounds moments in `device_rounding`. Returns the blocks that the launch takes.
uint32_t place_slices(std::span<const OptimizerSlice> slices,
                      std::span<const OptimizerUpdate> updates,
                      const OptimizerUpdate* device_updates,
                      PlacedSlice* table,
                      const MomentRounding* device_rounding = nullptr);

// Updates all slices of a table on the device by the formulas of exec/optimizers/, and writes the
// new parameters, rounded to T, to `stored`: one launch, one pass over memory. For T = float
// `stored` is null. T is float, BFloat16 or Float16; Moment, which all moments are stored as, float or
// BFloat16.
template <typename T, typename Moment = float>
void optimizer_update(const PlacedSlice* table, int count, uint32_t blocks, Stream stream);

}  // namespace lockstep::cuda
