#include "models/onnx/read/array.h"

#include <fmt/format.h>

#include <cstring>

#include "models/onnx/read/elements.h"
#include "runtime/base/check.h"

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

template <typename To>
std::vector<To> converted(const Array& array) {
  std::vector<To> result(static_cast<size_t>(array.size()));
  by_type(array.type, array.data.get(), [&](const auto* from) {
    for (size_t i = 0; i < result.size(); ++i) result[i] = read_element<To>(from[i]);
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

bool is_integer(ElementType type) { return !is_floating(type) && type != ElementType::kBool; }

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
  return array_from(type, std::move(extents), values);
}

Array array_of_int64(Extents extents, const std::vector<int64_t>& values) {
  NewArray made = make_array(ElementType::kInt64, std::move(extents));
  LOCKSTEP_REQUIRE(made.array.size() == static_cast<int64_t>(values.size()));
  if (!values.empty()) std::memcpy(made.data, values.data(), values.size() * sizeof(int64_t));
  return made.array;
}

Array list_of(const std::vector<int64_t>& values) {
  return array_of_int64({static_cast<int64_t>(values.size())}, values);
}

}  // namespace lockstep::onnx
