#pragma once
// Copies known elements in another order. With a stride for each axis, every op that only moves
// elements is the same loop.

#include <vector>

#include "models/onnx/read/array.h"
#include "models/onnx/read/elements.h"

namespace lockstep::onnx {

// The strides of a row-major array, in elements.
std::vector<int64_t> strides_of(const Extents& extents);

// Strides that read an array with extents `from` as if it were broadcast to `to`.
std::vector<int64_t> broadcast_strides(const Extents& from, const Extents& to);

// Calls work(offset) for `count` elements of an array with these extents, in row-major order from
// element `begin` on. The offset is start + the sum of index times stride over all axes.
template <typename Work>
void for_each_offset(const Extents& extents,
                     const std::vector<int64_t>& strides,
                     int64_t start,
                     int64_t begin,
                     int64_t count,
                     const Work& work) {
  if (count <= 0) return;
  const size_t rank = extents.size();
  std::vector<int64_t> index(rank);
  int64_t offset = start;
  for (size_t axis = rank; axis-- > 0;) {
    index[axis] = begin % extents[axis];
    begin /= extents[axis];
    offset += index[axis] * strides[axis];
  }
  while (true) {
    work(offset);
    if (--count == 0) return;
    for (size_t axis = rank; axis-- > 0;) {
      offset += strides[axis];
      if (++index[axis] < extents[axis]) break;
      offset -= extents[axis] * strides[axis];
      index[axis] = 0;
    }
  }
}

// The same for all elements, with offsets from 0.
template <typename Work>
void for_each_offset(const Extents& extents,
                     const std::vector<int64_t>& strides,
                     const Work& work) {
  for_each_offset(extents, strides, 0, 0, elements(extents), work);
}

// Copies the elements of `from` at `start` + index * `strides` to an array with extents `to`. All
// offsets must be inside `from`.
Array strided_copy(const Array& from,
                   const Extents& to,
                   const std::vector<int64_t>& strides,
                   int64_t start = 0);
Array broadcast_to(const Array& from, const Extents& to);

// The array with other extents, which have the same product. Shares the elements.
Array with_extents(const Array& from, Extents extents);

// The elements, converted like the op Cast.
Array cast(const Array& from, ElementType to);

// All elements as int64_t or double, the types in which evaluators compute.
template <typename To>
std::vector<To> elements_as(const Array& array) {
  if constexpr (std::is_same_v<To, double>)
    return array.as_double();
  else
    return array.as_int64();
}

}  // namespace lockstep::onnx
