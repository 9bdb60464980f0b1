#pragma once
// The data that an optimizer's update works on, and the inputs from which its constants are made.

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/base/dtype.h"
#include "runtime/exec/optimizers/rounding.h"

namespace lockstep::exec {

// The parameters of the next update.
struct UpdateStep {
  double lr = 0;
  double gradient_scale = 1;  // multiplies every gradient first: the mean over samples, clipping
  int64_t number = 1;         // of the update, from 1
  bool decays = true;         // whether weight decay touches these parameters
  float weight_decay = -1;    // overrides the optimizer's; -1: not set

  // The weight decay to use if the optimizer's is `configured`.
  double decay_of(double configured) const {
    if (!decays) return 0;
    return weight_decay >= 0 ? weight_decay : configured;
  }
};

// The most moments that an update takes.
inline constexpr int kMaxMoments = 3;

// Checksums of the bits of an array (base/bit_checksum.h), as the update has read and as it has
// written it.
struct ArrayChecksums {
  uint32_t read = 0, written = 0;
};

// The checksums of a slice's arrays; 0 if there is no such array.
struct SliceChecksums {
  ArrayChecksums gradients{}, parameters{};
  std::array<ArrayChecksums, kMaxMoments> moments{};
};

// A slice of the flat buffers to update. All pointers are borrowed and point to `elements` numbers,
// which are floats unless noted.
struct OptimizerSlice {
  size_t group = 0;  // the index of its update among the updates
  int64_t elements = 0;
  float* parameters = nullptr;  // fp32: the master weights if the ops read another type
  float* gradients = nullptr;   // overwritten by LAMB, with its directions, and by Exchange
  std::array<void*, kMaxMoments> moments = {};  // null from the first one that is not kept
  // The type of all moments: kF32, kBF16, or kU8 for MomentBlocks (base/moment_block.h). The slice
  // has whole blocks.
  DType moment_dtype = DType::kF32;
  uint8_t square_moments = 0;  // bit m: moment m is never negative
  // With kBF16: how moments are rounded, in a host_array(); the number of the parameter; and the
  // index of the slice's first element within it.
  const MomentRounding* rounding = nullptr;
  uint32_t parameter = 0;
  uint32_t first_element = 0;
  void* stored = nullptr;  // the new parameters in the type that the ops read; null if that is fp32
  DType stored_dtype = DType::kF32;
  // The checksums of this update; null: not wanted. Only for backends without memory of their own.
  SliceChecksums* checksums = nullptr;

  int kept_moments() const {
    int count = 0;
    while (count < kMaxMoments && moments[static_cast<size_t>(count)] != nullptr) ++count;
    return count;
  }
};

}  // namespace lockstep::exec
