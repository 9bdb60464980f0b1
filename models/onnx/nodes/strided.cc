#include "models/onnx/nodes/strided.h"

namespace lockstep::onnx {
namespace {

template <size_t kBytes>
struct Element {
  std::byte bytes[kBytes];
};

template <size_t kBytes>
void copy(const Array& from,
          const Extents& to,
          const std::vector<int64_t>& strides,
          int64_t start,
          std::byte* target) {
  const auto* source = reinterpret_cast<const Element<kBytes>*>(from.data.get());
  auto* next = reinterpret_cast<Element<kBytes>*>(target);
  for_each_offset(
      to, strides, start, 0, elements(to), [&](int64_t offset) { *next++ = source[offset]; });
}

}  // namespace

std::vector<int64_t> strides_of(const Extents& extents) {
  std::vector<int64_t> strides(extents.size());
  int64_t stride = 1;
  for (size_t axis = extents.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= extents[axis];
  }
  return strides;
}

std::vector<int64_t> broadcast_strides(const Extents& from, const Extents& to) {
  LOCKSTEP_REQUIRE(from.size() <= to.size());
  const std::vector<int64_t> from_strides = strides_of(from);
  const size_t shift = to.size() - from.size();
  std::vector<int64_t> strides(to.size(), 0);
  for (size_t axis = 0; axis < from.size(); ++axis)
    if (from[axis] != 1) strides[shift + axis] = from_strides[axis];
  return strides;
}

Array strided_copy(const Array& from,
                   const Extents& to,
                   const std::vector<int64_t>& strides,
                   int64_t start) {
  NewArray made = make_array(from.type, to);
  switch (size_of(from.type)) {
    case 1: copy<1>(from, to, strides, start, made.data); break;
    case 2: copy<2>(from, to, strides, start, made.data); break;
    case 4: copy<4>(from, to, strides, start, made.data); break;
    case 8: copy<8>(from, to, strides, start, made.data); break;
    default: LOCKSTEP_REQUIRE(from.type != ElementType::kString);
  }
  return made.array;
}

Array broadcast_to(const Array& from, const Extents& to) {
  if (from.extents == to) return from;
  return strided_copy(from, to, broadcast_strides(from.extents, to));
}

Array with_extents(const Array& from, Extents extents) {
  Array result = from;
  result.extents = std::move(extents);
  LOCKSTEP_REQUIRE(result.size() == from.size());
  return result;
}

Array cast(const Array& from, ElementType to) {
  if (from.type == to) return from;
  NewArray made = make_array(to, from.extents);
  const auto count = static_cast<size_t>(from.size());
  by_type(from.type, from.data.get(), [&](const auto* source) {
    by_type(to, made.data, [&](auto* target) {
      using To = std::decay_t<decltype(*target)>;
      using Source = std::decay_t<decltype(*source)>;
      constexpr bool kNumber = kIsHalf<Source> || std::is_floating_point_v<Source>;
      using Integer = std::conditional_t<std::is_same_v<Source, uint64_t>, uint64_t, int64_t>;
      using Between = std::conditional_t<kNumber, double, Integer>;
      for (size_t i = 0; i < count; ++i)
        target[i] = write_element<To>(read_element<Between>(source[i]));
    });
  });
  return made.array;
}

}  // namespace lockstep::onnx
