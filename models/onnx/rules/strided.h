#pragma once
// Copies of known elements in another order: with a stride for each axis, everything that only moves
// elements is one loop.

#include <vector>

#include "models/onnx/array.h"
#include "models/onnx/elements.h"

namespace lockstep::onnx {

// Elements from one place to the next along each axis of a row-major array.
std::vector<int64_t> strides_of(const Extents& extents);

// Strides with which an array of extents `from` is read as if it had been broadcast to `to`.
std::vector<int64_t> broadcast_strides(const Extents& from, const Extents& to);

// Calls work(offset) for the places of `extents` in row-major order, beginning with number `begin`,
// `count` of them: offset is start + the sum of place times stride.
template <typename Work>
void for_each_offset(const Extents& extents,
                     const std::vector<int64_t>& strides,
                     int64_t start,
                     int64_t begin,
                     int64_t count,
                     const Work& work) {
  if (count <= 0) return;
  const size_t rank = extents.size();
  std::vector<int64_t> place(rank);
  int64_t offset = start;
  for (size_t axis = rank; axis-- > 0;) {
    place[axis] = begin % extents[axis];
    begin /= extents[axis];
    offset += place[axis] * strides[axis];
  }
  while (true) {
    work(offset);
    if (--count == 0) return;
    for (size_t axis = rank; axis-- > 0;) {
      offset += strides[axis];
      if (++place[axis] < extents[axis]) break;
      offset -= extents[axis] * strides[axis];
      place[axis] = 0;
    }
  }
}

// An array of extents `to` whose elements lie at `start` and then by `strides` in `from`. All must lie in it.
Array strided_copy(const Array& from,
                   const Extents& to,
                   const std::vector<int64_t>& strides,
                   int64_t start = 0);
Array broadcast_to(const Array& from, const Extents& to);

// The array with other extents of the same product. Shares the elements.
Array with_extents(const Array& from, Extents extents);

// The elements in another type, as the op Cast has it.
Array cast(const Array& from, ElementType to);

// Elements in the type in which they are computed: int64_t or double.
template <typename To>
std::vector<To> elements_as(const Array& array) {
  if constexpr (std::is_same_v<To, double>)
    return array.as_double();
  else
    return array.as_int64();
}

}  // namespace lockstep::onnx
