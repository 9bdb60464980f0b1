#pragma once

#include <cstdint>

#include "runtime/base/host_device.h"

namespace lockstep {

// A parameter as matrices whose rows and columns Adafactor averages. In memory it is (batch, rows,
// columns, inner): batch * inner matrices, where `inner` is 1, or the channels of a convolution.
// Row r of a matrix has index (b, r, i) in an array of (batch, rows, inner); likewise columns.
struct FactoredShape {
  int64_t batch = 1, rows = 0, columns = 0, inner = 1;
  LOCKSTEP_HD int64_t elements() const { return batch * rows * columns * inner; }
  LOCKSTEP_HD int64_t all_rows() const { return batch * rows * inner; }
  LOCKSTEP_HD int64_t all_columns() const { return batch * columns * inner; }
  int64_t averages() const { return all_rows() + all_columns(); }
  bool operator==(const FactoredShape&) const = default;
};

}  // namespace lockstep
