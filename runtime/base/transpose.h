#pragma once
// Matrix transposition, for files that store matrices transposed.

#include <cstdint>

namespace lockstep {

// Writes the transpose of from (columns, rows) to to (rows, columns). They must not overlap.
inline void transpose(const float* from, int64_t rows, int64_t columns, float* to) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) to[r * columns + c] = from[c * rows + r];
  }
}

}  // namespace lockstep
