#pragma once
// The class that logits predict.

#include <cstdint>

#include "runtime/train/number_types.h"

namespace lockstep::train {

// The index of the largest of `classes` logits: of the first, if there are several.
template <typename Value>
int32_t class_of_row(const Value* logits, int64_t classes) {
  int32_t found = 0;
  float largest = to_float(logits[0]);
  for (int64_t c = 1; c < classes; ++c) {
    const float logit = to_float(logits[c]);
    if (!(logit > largest)) continue;
    largest = logit;
    found = static_cast<int32_t>(c);
  }
  return found;
}

}  // namespace lockstep::train
