#include "models/onnx/tensor_writer.h"

#include <utility>

#include "models/onnx/schema/onnx.pb.h"
#include "models/onnx/tensors.h"
#include "runtime/base/error.h"

namespace lockstep::onnx {
namespace {

using Proto = schema::TensorProto;

constexpr uint64_t kAlignment = 4096;    // a page: readers may map the elements alone
constexpr uint64_t kLargestGap = 65536;  // up to which the places of the old file are kept
constexpr size_t kSmallestOutside = 1024;

bool has_elements(uint32_t field) {
  return (field >= Proto::kFloatDataFieldNumber && field <= Proto::kInt64DataFieldNumber) ||
         (field >= Proto::kRawDataFieldNumber && field <= Proto::kUint64DataFieldNumber);
}

// The tensor without its elements.
Proto head_of(Bytes tensor) {
  std::string head;
  while (const auto field = next_field(tensor))
    if (!has_elements(field->number))
      head.append(reinterpret_cast<const char*>(field->whole.data()), field->whole.size());
  Proto parsed;
  parsed.ParsePartialFromString(head);
  return parsed;
}

template <typename T>
void append_varints(std::string& to, const Array& array) {
  const T* elements = array.as<T>();
  for (int64_t i = 0; i < array.size(); ++i)
    append_varint(to, static_cast<uint64_t>(static_cast<int64_t>(elements[i])));
}

// The elements as the values of one field, packed.
std::string packed(const Array& array) {
  std::string text;
  switch (array.type) {
    case ElementType::kFloat:
    case ElementType::kDouble:
      return {reinterpret_cast<const char*>(array.data.get()), array.bytes()};
    case ElementType::kInt64: append_varints<int64_t>(text, array); break;
    case ElementType::kUint64: append_varints<uint64_t>(text, array); break;
    case ElementType::kInt32: append_varints<int32_t>(text, array); break;
    case ElementType::kUint32: append_varints<uint32_t>(text, array); break;
    case ElementType::kInt16: append_varints<int16_t>(text, array); break;
    case ElementType::kInt8: append_varints<int8_t>(text, array); break;
    case ElementType::kUint8:
    case ElementType::kBool: append_varints<uint8_t>(text, array); break;
    case ElementType::kUint16:
    case ElementType::kFloat16:
    case ElementType::kBfloat16: append_varints<uint16_t>(text, array); break;
    case ElementType::kString: break;
  }
  return text;
}

std::string entry_field(const std::string& key, const std::string& value) {
  return bytes_field(Proto::kExternalDataFieldNumber, bytes_field(1, key) + bytes_field(2, value));
}

Rope rope_of(std::string text) {
  Rope rope;
  rope.own(std::move(text));
  return rope;
}

// The raw elements; empty where there are none.
Bytes raw_of(Bytes tensor) {
  Bytes raw;
  while (const auto field = next_field(tensor))
    if (field->number == Proto::kRawDataFieldNumber && field->type == WireType::kBytes)
      raw = field->value;
  return raw;
}

// The new elements as the tensor has them.
Array checked(const Array& elements, const Proto& head, const std::string& what) {
  const Extents extents(head.dims().begin(), head.dims().end());
  if (elements.extents != extents)
    throw ConfigError("{}: its new elements have extents {}; must have {}",
                      what,
                      to_string(elements.extents),
                      to_string(extents));
  const std::optional<ElementType> type = element_type_of(head.data_type());
  if (!type || *type == ElementType::kString)
    throw ConfigError("{}: its elements are no numbers and cannot be replaced", what);
  return converted(elements, *type, what);
}

// Bytes of the elements of an external tensor.
size_t external_bytes(const Proto& head, const ExternalPlace& place, const std::string& what) {
  if (place.length) return *place.length;
  const std::optional<ElementType> type = element_type_of(head.data_type());
  if (!type)
    throw ConfigError(
        "{}: its external data has no length; must have one, as its type is not known", what);
  return static_cast<size_t>(elements(extents_of(head, size_of(*type), what))) * size_of(*type);
}

}  // namespace

Array converted(const Array& array, ElementType type, const std::string& what) {
  if (array.type == type) return array;
  if (!is_floating(array.type) || !is_floating(type))
    throw ConfigError("{}: its new elements have type {}; must have {}",
                      what,
                      name_of(array.type),
                      name_of(type));
  return array_of(type, array.extents, array.as_double());
}

TensorWriter::TensorWriter(const std::string& source, std::string location, bool move_outside)
    : location_(std::move(location)), move_outside_(move_outside), external_(source) {}

Rope TensorWriter::rewrite(Bytes tensor, const Array* elements, const std::string& what) {
  const Proto head = head_of(tensor);
  if (elements != nullptr) kept_.push_back(checked(*elements, head, what));
  const Array* now = elements != nullptr ? &kept_.back() : nullptr;
  if (head.data_location() == Proto::EXTERNAL) {
    const ExternalPlace old = external_place_of(head, what);
    const size_t bytes = now != nullptr ? now->bytes() : external_bytes(head, old, what);
    auto data = now != nullptr ? now->data : external_.read(old, bytes, 1, what);
    return rewrite_external(tensor, old, std::move(data), bytes);
  }
  const Bytes raw = raw_of(tensor);
  if (move_outside_ && now != nullptr && now->bytes() >= kSmallestOutside)
    return move_outside(tensor, now->data, now->bytes());
  if (move_outside_ && raw.size() >= kSmallestOutside)
    return move_outside(tensor, {std::shared_ptr<const std::byte>(), raw.data()}, raw.size());
  if (now != nullptr) return rewrite_inside(tensor, *now);
  Rope same;
  same.add(tensor);
  return same;
}

// In the field in which the elements were.
Rope TensorWriter::rewrite_inside(Bytes tensor, const Array& elements) {
  bool written = false;
  return rewrite_message(tensor, [&](const WireField& field) -> std::optional<Rope> {
    if (!has_elements(field.number)) return std::nullopt;
    if (std::exchange(written, true)) return Rope();
    if (field.number != Proto::kRawDataFieldNumber)
      return rope_of(bytes_field(field.number, packed(elements)));
    Rope raw, whole;
    raw.add({elements.data.get(), elements.bytes()});
    whole.field(field.number, std::move(raw));
    return whole;
  });
}

Rope TensorWriter::rewrite_external(Bytes tensor,
                                    const ExternalPlace& old,
                                    std::shared_ptr<const std::byte> data,
                                    size_t bytes) {
  const uint64_t offset = put_outside(std::move(data), bytes, &old);
  bool tells_offset = false;
  Rope result = rewrite_message(tensor, [&](const WireField& field) -> std::optional<Rope> {
    if (field.number != Proto::kExternalDataFieldNumber) return std::nullopt;
    const std::string key = text_of(field.value, 1);
    const std::string value = text_of(field.value, 2);
    if (key == "checksum") return Rope();  // of the old elements
    std::string now = value;
    if (key == "location") now = location_;
    if (key == "offset") now = std::to_string(offset);
    if (key == "length") now = std::to_string(bytes);
    tells_offset = tells_offset || key == "offset";
    if (now == value) return std::nullopt;
    return rope_of(entry_field(key, now));
  });
  if (!tells_offset && offset > 0) result.own(entry_field("offset", std::to_string(offset)));
  return result;
}

Rope TensorWriter::move_outside(Bytes tensor, std::shared_ptr<const std::byte> data, size_t bytes) {
  const uint64_t offset = put_outside(std::move(data), bytes, nullptr);
  Rope result = rewrite_message(tensor, [&](const WireField& field) -> std::optional<Rope> {
    const bool goes = has_elements(field.number) ||
                      field.number == Proto::kExternalDataFieldNumber ||
                      field.number == Proto::kDataLocationFieldNumber;
    return goes ? std::optional<Rope>(Rope()) : std::nullopt;
  });
  result.own(entry_field("location", location_) + entry_field("offset", std::to_string(offset)) +
             entry_field("length", std::to_string(bytes)));
  std::string location;
  append_tag(location, Proto::kDataLocationFieldNumber, WireType::kVarint);
  append_varint(location, Proto::EXTERNAL);
  result.own(std::move(location));
  return result;
}

// A tensor keeps its offset where those before it end just before that: then a file that is written
// again without a change is the same file.
uint64_t TensorWriter::put_outside(std::shared_ptr<const std::byte> data,
                                   size_t bytes,
                                   const ExternalPlace* old) {
  uint64_t offset = (end_ + kAlignment - 1) / kAlignment * kAlignment;
  if (old != nullptr) {
    if (home_.empty()) home_ = old->location;
    if (old->location == home_ && old->offset >= end_ && old->offset - end_ <= kLargestGap)
      offset = old->offset;
  }
  end_ = offset + bytes;
  outside_.push_back({offset, std::move(data), bytes});
  return offset;
}

}  // namespace lockstep::onnx
