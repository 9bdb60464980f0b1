#pragma once
// How the elements of a value of the file lie in the graph's parameter.

#include <cstdint>
#include <vector>

#include "models/onnx/network.h"
#include "runtime/base/shape.h"

namespace lockstep::onnx {

enum class Storage : uint8_t {
  kAsInFile,
  kTransposed,  // (I, O) there, (O, I) here
  // Of a convolution: (O, I, H, W) there, (O, H, W, I) here. Of one axis (O, I, L) is (O, 1, L, I); of
  // three (O, I, D, H, W) is (O, H, W, D I), as the op reads the depths beside the channels.
  kKernel,
};

// Extents of a value as those of a tensor. Throws ConfigError where there are too many, or no element.
Shape shape_of(const Value& value);
// Of the parameter.
Shape stored_shape(const Value& value, Storage storage);
// Of a kernel, with the file's axes: (O, L, I), (O, H, W, I) or (O, H, W, D, I).
Shape kernel_order(const Value& value);

// A value's elements as a parameter has them.
std::vector<float> elements_of(const Value& value, Storage storage);
// The other way: a parameter's elements as the value has them.
std::vector<double> elements_in_file(const Value& value, Storage storage, const float* parameter);

}  // namespace lockstep::onnx
