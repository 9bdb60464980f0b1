#pragma once
// What is applied to the sums of a product before they are stored.

#include <cstdint>

#include "runtime/graph/activation.h"

namespace lockstep::cpu {

// y = activation((sum + bias - mean) * scale + shift + residual), rounded after each step as the
// separate ops do. So a bias, a batch norm and the sum with a shortcut give the same bits here as
// on their own. A null pointer leaves out its step; mean, scale and shift are set together. T: what
// the result and the residual store, float or BFloat16.
template <typename T>
struct Epilogue {
  const float* bias = nullptr;   // (columns)
  const float* mean = nullptr;   // (columns)
  const float* scale = nullptr;  // (columns)
  const float* shift = nullptr;  // (columns)
  const T* residual = nullptr;   // laid out like the result
  Activation activation = Activation::kNone;

  // Whether there is nothing to apply.
  bool empty() const {
    return bias == nullptr && mean == nullptr && residual == nullptr &&
           activation == Activation::kNone;
  }
  // The epilogue for the part of the result that begins `column` columns, or `elements` elements,
  // later.
  Epilogue from(int64_t column, int64_t elements) const {
    const auto at = [](const auto* p, int64_t n) { return p == nullptr ? nullptr : p + n; };
    return {at(bias, column),
            at(mean, column),
            at(scale, column),
            at(shift, column),
            at(residual, elements),
            activation};
  }
};

// Applies the epilogue in place to some rows and columns of y. `stride`: elements between rows of
// y and of the residual.
void finish_block(const Epilogue<float>& epilogue,
                  int64_t row_begin,
                  int64_t row_end,
                  int64_t column_begin,
                  int64_t column_end,
                  int64_t stride,
                  float* y);

}  // namespace lockstep::cpu
