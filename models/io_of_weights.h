#pragma once
// What a model's ends must be for weights that exist already.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/registry.h"

namespace lockstep {

// Extents of the tensor of this name, as files hold it; none where there is no such tensor.
using ExtentsOf = std::function<std::optional<std::vector<int64_t>>(const std::string& name)>;

// Inputs, classes and the size of images, read off the first and the last tensors of the weights,
// so that a model can be built without its data. Where a network takes images of any size, or a
// tensor is missing, a usual value stands in: what does not fit shows when shapes are compared.
ModelIo io_of_weights(const ModelConfig& model, const ExtentsOf& extents_of);

}  // namespace lockstep
