#pragma once
// Access to an array's elements by their C++ type, and conversions that are defined for every
// value.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "models/onnx/read/array.h"
#include "runtime/base/check.h"
#include "runtime/base/half.h"

namespace lockstep::onnx {

// A boolean element, as stored.
struct Bool {
  uint8_t byte;
};

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// Calls work(pointer to elements), typed as the C++ type of the elements. `type` must not be
// kString.
template <typename Elements, typename Work>
void by_type(ElementType type, Elements* data, const Work& work) {
  const auto as = [&]<typename T>(T) {
    if constexpr (std::is_const_v<Elements>)
      work(reinterpret_cast<const T*>(data));
    else
      work(reinterpret_cast<T*>(data));
  };
  switch (type) {
    case ElementType::kFloat: return as(float{});
    case ElementType::kDouble: return as(double{});
    case ElementType::kFloat16: return as(Float16{});
    case ElementType::kBfloat16: return as(BFloat16{});
    case ElementType::kInt8: return as(int8_t{});
    case ElementType::kUint8: return as(uint8_t{});
    case ElementType::kBool: return as(Bool{});
    case ElementType::kInt16: return as(int16_t{});
    case ElementType::kUint16: return as(uint16_t{});
    case ElementType::kInt32: return as(int32_t{});
    case ElementType::kUint32: return as(uint32_t{});
    case ElementType::kInt64: return as(int64_t{});
    case ElementType::kUint64: return as(uint64_t{});
    case ElementType::kString: break;
  }
  LOCKSTEP_REQUIRE(type != ElementType::kString);
}

// Rounds towards zero. Saturates at the smallest and largest int64_t; 0 for NaN.
inline int64_t truncated(double x) {
  constexpr double kBeyond = 9223372036854775808.0;  // 2^63
  if (std::isnan(x)) return 0;
  if (x >= kBeyond) return std::numeric_limits<int64_t>::max();
  if (x < -kBeyond) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(x);
}

// Converts an element to To (int64_t, double or float). uint64 wraps in int64_t.
template <typename To, typename From>
To read_element(From x) {
  if constexpr (std::is_same_v<From, Bool>)
    return static_cast<To>(x.byte != 0 ? 1 : 0);
  else if constexpr (kIsHalf<From>)
    return read_element<To>(to_float(x));
  else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>)
    return truncated(static_cast<double>(x));
  else
    return static_cast<To>(x);
}

// Converts a number (int64_t, double or float) to an element: floating-point types are rounded,
// integers wrap, bool is whether the number is not 0.
template <typename To, typename From>
To write_element(From x) {
  if constexpr (std::is_same_v<To, Bool>)
    return Bool{static_cast<uint8_t>(x != 0 ? 1 : 0)};
  else if constexpr (kIsHalf<To>)
    return round_to<To>(static_cast<float>(x));
  else if constexpr (std::is_same_v<To, uint64_t> && std::is_floating_point_v<From>)
    return x >= 9223372036854775808.0 && x < 18446744073709551616.0
               ? static_cast<uint64_t>(x)
               : static_cast<uint64_t>(truncated(static_cast<double>(x)));
  else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>)
    return static_cast<To>(truncated(static_cast<double>(x)));
  else
    return static_cast<To>(x);
}

// Makes an array of numbers or integers, converted to `type`.
template <typename From>
Array array_from(ElementType type, Extents extents, const std::vector<From>& values) {
  NewArray made = make_array(type, std::move(extents));
  LOCKSTEP_REQUIRE(made.array.size() == static_cast<int64_t>(values.size()));
  by_type(type, made.data, [&](auto* to) {
    using To = std::decay_t<decltype(*to)>;
    for (size_t i = 0; i < values.size(); ++i) to[i] = write_element<To>(values[i]);
  });
  return made.array;
}

}  // namespace lockstep::onnx
