#include "models/onnx/read/tensors.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "models/onnx/schema/onnx.pb.h"
#include "runtime/base/error.h"

namespace lockstep::onnx {
namespace {

static_assert(std::endian::native == std::endian::little, "raw_data is little-endian");

// The format's names of the types, by their number.
constexpr const char* kFormatNames[] = {
    "undefined",      "float",    "uint8",        "int8",           "uint16",
    "int16",          "int32",    "int64",        "string",         "bool",
    "float16",        "double",   "uint32",       "uint64",         "complex64",
    "complex128",     "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2",
    "float8e5m2fnuz", "uint4",    "int4",         "float4e2m1",     "float8e8m0",
    "uint2",          "int2"};

void check_count(int64_t count, const Array& array, const std::string& what) {
  if (count != array.size())
    throw ConfigError("{}: has {} elements; must have {} for its extents {}",
                      what,
                      count,
                      array.size(),
                      to_string(array.extents));
}

// Copies elements from a field of a wider type. Throws ConfigError if one does not fit in T.
template <typename T, typename Field>
void narrow(const Field& field, std::byte* to, const Array& array, const std::string& what) {
  for (int i = 0; i < field.size(); ++i) {
    const auto value = field[i];
    const T narrowed = static_cast<T>(value);
    const bool truth = array.type != ElementType::kBool || value == 0 || value == 1;
    if (narrowed != value || !truth)
      throw ConfigError(
          "{}: element {} is {}, which is not a valid {}", what, i, value, name_of(array.type));
    std::memcpy(to + static_cast<size_t>(i) * sizeof(T), &narrowed, sizeof(T));
  }
}

template <typename Field>
void copy(const Field& field, std::byte* to) {
  if (!field.empty())
    std::memcpy(to, field.data(), static_cast<size_t>(field.size()) * sizeof(*field.data()));
}

int typed_elements(const schema::TensorProto& tensor) {
  return tensor.float_data_size() + tensor.int32_data_size() + tensor.int64_data_size() +
         tensor.double_data_size() + tensor.uint64_data_size() + tensor.string_data_size();
}

// The number of elements in the field that stores this type.
int64_t stored_elements(const schema::TensorProto& tensor, ElementType type) {
  switch (type) {
    case ElementType::kFloat: return tensor.float_data_size();
    case ElementType::kDouble: return tensor.double_data_size();
    case ElementType::kInt64: return tensor.int64_data_size();
    case ElementType::kUint32:
    case ElementType::kUint64: return tensor.uint64_data_size();
    case ElementType::kString: return tensor.string_data_size();
    default: return tensor.int32_data_size();
  }
}

void check_truth_values(const Array& array, const std::string& what) {
  if (array.type != ElementType::kBool) return;
  const uint8_t* values = array.as<uint8_t>();
  for (int64_t i = 0; i < array.size(); ++i)
    if (values[i] > 1)
      throw ConfigError("{}: element {} is {}, which is not a valid bool", what, i, values[i]);
}

}  // namespace

std::optional<ElementType> element_type_of(int64_t number) {
  using Proto = schema::TensorProto;
  switch (number) {
    case Proto::FLOAT: return ElementType::kFloat;
    case Proto::UINT8: return ElementType::kUint8;
    case Proto::INT8: return ElementType::kInt8;
    case Proto::UINT16: return ElementType::kUint16;
    case Proto::INT16: return ElementType::kInt16;
    case Proto::INT32: return ElementType::kInt32;
    case Proto::INT64: return ElementType::kInt64;
    case Proto::STRING: return ElementType::kString;
    case Proto::BOOL: return ElementType::kBool;
    case Proto::FLOAT16: return ElementType::kFloat16;
    case Proto::DOUBLE: return ElementType::kDouble;
    case Proto::UINT32: return ElementType::kUint32;
    case Proto::UINT64: return ElementType::kUint64;
    case Proto::BFLOAT16: return ElementType::kBfloat16;
    default: return std::nullopt;
  }
}

std::string type_text_of(int number) {
  const bool named = number >= 0 && number < static_cast<int>(std::size(kFormatNames));
  return named ? fmt::format("{} ({})", number, kFormatNames[number]) : std::to_string(number);
}

Extents extents_of(const schema::TensorProto& tensor, size_t element, const std::string& what) {
  Extents extents(tensor.dims().begin(), tensor.dims().end());
  // Zeros count as 1, so that the product of the other extents must not overflow either.
  int64_t bytes = static_cast<int64_t>(std::max<size_t>(element, 1));
  for (const int64_t extent : extents) {
    if (extent < 0)
      throw ConfigError("{}: its extents are {}; none may be below 0", what, to_string(extents));
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(extent, 1), &bytes))
      throw ConfigError(
          "{}: its extents are {}, which is more than fits in memory", what, to_string(extents));
  }
  return extents;
}

TensorReader::TensorReader(const std::string& path, std::shared_ptr<const schema::ModelProto> model)
    : path_(path), model_(std::move(model)), external_(path) {}

Array TensorReader::read(const schema::TensorProto& tensor, const std::string& what) {
  const auto found = known_.find(&tensor);
  if (found != known_.end()) return found->second;
  return known_[&tensor] = read_uncached(tensor, fmt::format("{}: {}", path_, what));
}

Array TensorReader::read_uncached(const schema::TensorProto& tensor, const std::string& what) {
  const std::optional<ElementType> type = element_type_of(tensor.data_type());
  if (!type)
    throw ConfigError(
        "{}: its elements have type {}; must be float, double, float16, bfloat16, int8 to int64, "
        "uint8 to uint64, bool or string",
        what,
        type_text_of(tensor.data_type()));
  if (tensor.has_segment())
    throw ConfigError("{}: it is a segment of a tensor; must be a complete tensor", what);
  Array array{*type, extents_of(tensor, size_of(*type), what), nullptr};
  const bool external = tensor.data_location() == schema::TensorProto::EXTERNAL;
  const int forms =
      (external ? 1 : 0) + (tensor.has_raw_data() ? 1 : 0) + (typed_elements(tensor) > 0 ? 1 : 0);
  if (forms > 1 && !(external && tensor.raw_data().empty() && typed_elements(tensor) == 0))
    throw ConfigError("{}: has its elements in two fields; must have them in one", what);
  if (external && *type != ElementType::kString)
    array.data =
        external_.read(external_reference_of(tensor, what), array.bytes(), size_of(*type), what);
  else if (tensor.has_raw_data() && *type != ElementType::kString)
    array.data = raw_data(tensor, array, what);
  else
    return from_fields(tensor, std::move(array), what);
  check_truth_values(array, what);
  return array;
}

std::shared_ptr<const std::byte> TensorReader::raw_data(const schema::TensorProto& tensor,
                                                        const Array& array,
                                                        const std::string& what) const {
  const std::string& raw = tensor.raw_data();
  if (raw.size() != array.bytes())
    throw ConfigError("{}: its raw data has {} bytes; must have {} for its extents {}",
                      what,
                      raw.size(),
                      array.bytes(),
                      to_string(array.extents));
  return {model_, reinterpret_cast<const std::byte*>(raw.data())};
}

Array TensorReader::from_fields(const schema::TensorProto& tensor,
                                Array array,
                                const std::string& what) const {
  check_count(stored_elements(tensor, array.type), array, what);
  if (typed_elements(tensor) != stored_elements(tensor, array.type))
    throw ConfigError(
        "{}: has elements of another type; all must be {}", what, name_of(array.type));
  if (array.type == ElementType::kString) return array;
  const NewArray made = make_array(array.type, array.extents);
  const auto& small = tensor.int32_data();
  switch (array.type) {
    case ElementType::kFloat: copy(tensor.float_data(), made.data); break;
    case ElementType::kDouble: copy(tensor.double_data(), made.data); break;
    case ElementType::kInt64: copy(tensor.int64_data(), made.data); break;
    case ElementType::kUint64: copy(tensor.uint64_data(), made.data); break;
    case ElementType::kUint32:
      narrow<uint32_t>(tensor.uint64_data(), made.data, array, what);
      break;
    case ElementType::kInt32: copy(small, made.data); break;
    case ElementType::kInt16: narrow<int16_t>(small, made.data, array, what); break;
    case ElementType::kInt8: narrow<int8_t>(small, made.data, array, what); break;
    case ElementType::kUint8:
    case ElementType::kBool: narrow<uint8_t>(small, made.data, array, what); break;
    case ElementType::kUint16:
    case ElementType::kFloat16:  // as the bits of a uint16
    case ElementType::kBfloat16: narrow<uint16_t>(small, made.data, array, what); break;
    case ElementType::kString: break;
  }
  return made.array;
}

}  // namespace lockstep::onnx
