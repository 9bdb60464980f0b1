#include "models/onnx/array.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/half.h"

namespace lockstep::onnx {
namespace {

struct TypeFacts {
  ElementType type;
  size_t bytes;
  const char* name;
};

constexpr TypeFacts kTypes[] = {
    {ElementType::kFloat, 4, "float"},
    {ElementType::kDouble, 8, "double"},
    {ElementType::kFloat16, 2, "float16"},
    {ElementType::kBfloat16, 2, "bfloat16"},
    {ElementType::kInt8, 1, "int8"},
    {ElementType::kUint8, 1, "uint8"},
    {ElementType::kInt16, 2, "int16"},
    {ElementType::kUint16, 2, "uint16"},
    {ElementType::kInt32, 4, "int32"},
    {ElementType::kUint32, 4, "uint32"},
    {ElementType::kInt64, 8, "int64"},
    {ElementType::kUint64, 8, "uint64"},
    {ElementType::kBool, 1, "bool"},
    {ElementType::kString, 0, "string"},
};

const TypeFacts& facts_of(ElementType type) {
  const TypeFacts& facts = kTypes[static_cast<size_t>(type)];
  LOCKSTEP_REQUIRE(facts.type == type);
  return facts;
}

// Calls work(pointer to elements), with the type in which C++ has them.
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
    case ElementType::kBool: return as(uint8_t{});
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

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

template <typename To>
std::vector<To> converted(const Array& array) {
  std::vector<To> result(static_cast<size_t>(array.size()));
  by_type(array.type, array.data.get(), [&](const auto* from) {
    using From = std::decay_t<decltype(*from)>;
    for (size_t i = 0; i < result.size(); ++i) {
      if constexpr (kIsHalf<From>)
        result[i] = static_cast<To>(to_float(from[i]));
      else
        result[i] = static_cast<To>(from[i]);
    }
  });
  return result;
}

}  // namespace

size_t size_of(ElementType type) { return facts_of(type).bytes; }

const char* name_of(ElementType type) { return facts_of(type).name; }

bool is_floating(ElementType type) {
  return type == ElementType::kFloat || type == ElementType::kDouble ||
         type == ElementType::kFloat16 || type == ElementType::kBfloat16;
}

int64_t elements(const Extents& extents) {
  int64_t product = 1;
  for (const int64_t extent : extents) product *= extent;
  return product;
}

std::string to_string(const Extents& extents) {
  return fmt::format("({})", fmt::join(extents, ", "));
}

std::vector<int64_t> Array::as_int64() const { return converted<int64_t>(*this); }
std::vector<double> Array::as_double() const { return converted<double>(*this); }
std::vector<float> Array::as_float() const { return converted<float>(*this); }

NewArray make_array(ElementType type, Extents extents) {
  NewArray made;
  const size_t bytes = static_cast<size_t>(elements(extents)) * size_of(type);
  const std::shared_ptr<std::byte[]> data(new std::byte[bytes > 0 ? bytes : 1]);
  made.data = data.get();
  made.array = {type, std::move(extents), std::shared_ptr<const std::byte>(data, data.get())};
  return made;
}

Array array_of(ElementType type, Extents extents, const std::vector<double>& values) {
  NewArray made = make_array(type, std::move(extents));
  LOCKSTEP_REQUIRE(made.array.size() == static_cast<int64_t>(values.size()));
  by_type(type, made.data, [&](auto* to) {
    using To = std::decay_t<decltype(*to)>;
    for (size_t i = 0; i < values.size(); ++i) {
      if constexpr (kIsHalf<To>)
        to[i] = round_to<To>(static_cast<float>(values[i]));
      else if (type == ElementType::kBool)
        to[i] = static_cast<To>(values[i] != 0 ? 1 : 0);
      else
        to[i] = static_cast<To>(values[i]);
    }
  });
  return made.array;
}

Array array_of_int64(Extents extents, const std::vector<int64_t>& values) {
  NewArray made = make_array(ElementType::kInt64, std::move(extents));
  LOCKSTEP_REQUIRE(made.array.size() == static_cast<int64_t>(values.size()));
  if (!values.empty()) std::memcpy(made.data, values.data(), values.size() * sizeof(int64_t));
  return made.array;
}

}  // namespace lockstep::onnx
