#include "models/onnx/nodes/lowering/storage.h"

#include "runtime/base/error.h"
#include "runtime/base/transpose.h"

namespace lockstep::onnx {
namespace {

// Calls body(index in the file, index in the parameter) for every element of a kernel.
template <typename Body>
void each_element(const Shape& kernel, Body&& body) {
  const int64_t channels = kernel[1], depth = kernel.rank() == 5 ? kernel[2] : 1;
  const int64_t pixels = kernel.elements() / (kernel[0] * channels * depth);
  size_t in_file = 0;
  for (int64_t o = 0; o < kernel[0]; ++o) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t d = 0; d < depth; ++d) {
        for (int64_t p = 0; p < pixels; ++p)
          body(in_file++, static_cast<size_t>(((o * pixels + p) * depth + d) * channels + c));
      }
    }
  }
}

}  // namespace

Shape shape_of(const Value& value) {
  if (value.extents.size() > Shape::kMaxRank)
    throw ConfigError("value \"{}\": has {} axes; allowed: at most {}",
                      value.name,
                      value.extents.size(),
                      Shape::kMaxRank);
  Shape shape;
  for (const int64_t extent : value.extents) shape.append(extent);
  if (shape.elements() == 0)
    throw ConfigError(
        "value \"{}\": has extents {}; must have an element", value.name, to_string(value.extents));
  return shape;
}

Shape stored_shape(const Value& value, Storage storage) {
  const Shape shape = shape_of(value);
  if (storage == Storage::kAsInFile) return shape;
  if (storage == Storage::kTransposed) return {shape[1], shape[0]};
  const Shape order = kernel_order(value);
  if (order.rank() == 3) return {order[0], 1, order[1], order[2]};
  return order.rank() == 4 ? order : Shape{order[0], order[1], order[2], order[3] * order[4]};
}

Shape kernel_order(const Value& value) {
  const Shape shape = shape_of(value);
  LOCKSTEP_CHECK(shape.rank() >= 3 && shape.rank() <= 5, "{}: a kernel ", value.name);
  if (shape.rank() == 3) return {shape[0], shape[2], shape[1]};
  if (shape.rank() == 4) return {shape[0], shape[2], shape[3], shape[1]};
  return {shape[0], shape[3], shape[4], shape[2], shape[1]};
}

std::vector<float> elements_of(const Value& value, Storage storage) {
  std::vector<float> elements = value.array.as_float();
  if (storage == Storage::kAsInFile) return elements;
  const Shape shape = shape_of(value);
  std::vector<float> stored(elements.size());
  if (storage == Storage::kTransposed)
    transpose(elements.data(), shape[1], shape[0], stored.data());
  else
    each_element(shape,
                 [&](size_t in_file, size_t in_graph) { stored[in_graph] = elements[in_file]; });
  return stored;
}

std::vector<double> elements_in_file(const Value& value, Storage storage, const float* parameter) {
  const Shape shape = shape_of(value);
  std::vector<float> elements(parameter, parameter + shape.elements());
  if (storage == Storage::kTransposed) transpose(parameter, shape[0], shape[1], elements.data());
  if (storage == Storage::kKernel)
    each_element(shape,
                 [&](size_t in_file, size_t in_graph) { elements[in_file] = parameter[in_graph]; });
  return {elements.begin(), elements.end()};
}

}  // namespace lockstep::onnx
