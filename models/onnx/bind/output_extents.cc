#include "models/onnx/bind/output_extents.h"

#include <algorithm>

namespace lockstep::onnx {

void require_same_extents(const std::string& file,
                          const std::vector<int>& outputs,
                          const Network& network,
                          const Network& other) {
  for (const int number : outputs) {
    const Value& one = network.values[static_cast<size_t>(number)];
    const Extents& two = other.values[static_cast<size_t>(number)].extents;
    for (size_t axis = 1; axis < std::min(one.extents.size(), two.size()); ++axis)
      if (one.extents[axis] != two[axis])
        throw OutputExtentsError(
            "model.onnx.output: \"{}\" of {} has as many elements along axis {} as the batch has "
            "samples, as similarities between samples have; a loss that compares samples with each "
            "other is not supported; allowed: (N, ...) with the same extents for any batch N",
            one.name,
            file,
            axis);
  }
}

}  // namespace lockstep::onnx
