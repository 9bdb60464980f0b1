#pragma once
// How the elements of a file's parameter are stored in the graph's parameter.

#include <cstdint>
#include <vector>

#include "models/onnx/network.h"
#include "runtime/base/shape.h"

namespace lockstep::onnx {

enum class Storage : uint8_t {
  kAsInFile,
  kTransposed,  // (I, O) in the file, (O, I) in the graph
  // A convolution's kernel: (O, I, H, W) in the file, (O, H, W, I) in the graph. With one spatial
  // axis, (O, I, L) becomes (O, 1, L, I). With three, (O, I, D, H, W) becomes (O, H, W, D I),
  // because the op reads the depths as channels.
  kKernel,
};

// The value's extents as the shape of a tensor. Throws ConfigError if there are too many axes or no
// elements.
Shape shape_of(const Value& value);
// The shape of the graph's parameter.
Shape stored_shape(const Value& value, Storage storage);
// The extents of a kernel in the order of the graph, with all axes of the file:
// (O, L, I), (O, H, W, I) or (O, H, W, D, I).
Shape kernel_order(const Value& value);

// The value's elements in the order of the graph's parameter.
std::vector<float> elements_of(const Value& value, Storage storage);
// The inverse: the parameter's elements in the file's order.
std::vector<double> elements_in_file(const Value& value, Storage storage, const float* parameter);

}  // namespace lockstep::onnx
