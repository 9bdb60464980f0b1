#pragma once
// What an optimizer's update works on, and what it is made from.

#include <cstddef>
#include <cstdint>

#include "runtime/base/dtype.h"
#include "runtime/exec/optimizers/rounding.h"

namespace lockstep {

// How the next update is to be made.
struct UpdateStep {
  double lr = 0;
  double gradient_scale = 1;  // multiplies every gradient first: the mean over samples, clipping
  int64_t number = 1;         // of the update, from 1
  bool decays = true;         // whether weight decay touches these parameters
  float weight_decay = -1;    // theirs, which goes before the optimizer's; -1: that one

  // Their weight decay, where the optimizer's is `configured`.
  double decay_of(double configured) const {
    if (!decays) return 0;
    return weight_decay >= 0 ? weight_decay : configured;
  }
};

// Sums of bits (base/bit_sum.h) of an array, as an update has read it and as it has left it.
struct ArraySums {
  uint32_t read = 0, written = 0;
};

// Of the arrays of a slice; 0 where there is none.
struct SliceSums {
  ArraySums gradients{}, parameters{}, first_moment{}, second_moment{};
};

// A slice of the flat buffers that is updated. All pointers are to `elements` numbers, floats but
// for those that say otherwise, and borrowed.
struct OptimizerSlice {
  size_t group = 0;  // the place, among the updates, of the one that it takes
  int64_t elements = 0;
  float* parameters = nullptr;       // fp32: the masters where the ops read another type
  float* gradients = nullptr;        // written by LAMB, whose directions they become, and exchanged
  void* first_moment = nullptr;      // null where the update keeps none
  void* second_moment = nullptr;     // null where it keeps no two
  DType moment_dtype = DType::kF32;  // of both: kF32 or kBF16
  // With kBF16, what rounds them, in a host_array(); and the number of the parameter and, within it,
  // of the first element.
  const MomentRounding* rounding = nullptr;
  uint32_t parameter = 0;
  uint32_t first_element = 0;
  void* stored = nullptr;  // the new parameters in the type that the ops read; null where fp32
  DType stored_dtype = DType::kF32;
  // Of this update; null: nobody asks. Of backends without memory of their own alone.
  SliceSums* sums = nullptr;
};

}  // namespace lockstep
