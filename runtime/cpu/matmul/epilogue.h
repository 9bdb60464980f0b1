#pragma once
// What happens to the sums of a product before they are stored.

#include <cstdint>

#include "runtime/graph/activation.h"

namespace lockstep::cpu {

// y = activation((sum + bias - mean) * scale + shift + residual), with the roundings of the
// separate steps: a bias, a batch norm and the sum with a shortcut have the same bits here as on
// their own. Null stands for a step that is left out; mean, scale and shift come together.
struct Epilogue {
  const float* bias = nullptr;      // (columns)
  const float* mean = nullptr;      // (columns)
  const float* scale = nullptr;     // (columns)
  const float* shift = nullptr;     // (columns)
  const float* residual = nullptr;  // its elements lie as those of the result
  Activation activation = Activation::kNone;

  // Whether the sums are the result.
  bool empty() const {
    return bias == nullptr && mean == nullptr && residual == nullptr &&
           activation == Activation::kNone;
  }
  // For a result that begins `column` columns, and `elements` elements, further on.
  Epilogue from(int64_t column, int64_t elements) const {
    const auto at = [](const float* p, int64_t n) { return p == nullptr ? nullptr : p + n; };
    return {at(bias, column),
            at(mean, column),
            at(scale, column),
            at(shift, column),
            at(residual, elements),
            activation};
  }
};

// Makes results of the sums in some rows and columns of y, in place; `stride`: elements between
// rows of y, of the residual and of `pre`, which receives the sums with their bias, or is null.
void finish_block(const Epilogue& epilogue,
                  int64_t row_begin,
                  int64_t row_end,
                  int64_t column_begin,
                  int64_t column_end,
                  int64_t stride,
                  float* pre,
                  float* y);

}  // namespace lockstep::cpu
