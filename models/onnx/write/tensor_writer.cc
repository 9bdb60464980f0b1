#include "models/onnx/write/tensor_writer.h"

#include <utility>

#include "models/onnx/read/tensors.h"
#include "models/onnx/schema/onnx.pb.h"
#include "runtime/base/error.h"

namespace lockstep::onnx {
namespace {

using Proto = schema::TensorProto;

constexpr uint64_t kAlignment = 4096;  // a page, so that readers can map single tensors
constexpr uint64_t kMaxGap = 65536;    // larger gaps in the old file are closed
constexpr size_t kMinOutsideBytes = 1024;

bool has_elements(uint32_t field) {
  return (field >= Proto::kFloatDataFieldNumber && field <= Proto::kInt64DataFieldNumber) ||
         (field >= Proto::kRawDataFieldNumber && field <= Proto::kUint64DataFieldNumber);
}

// The parsed tensor, without its elements.
Proto head_of(Bytes tensor) {
  std::string head;
  while (const auto field = next_field(tensor))
    if (!has_elements(field->number))
      head.append(reinterpret_cast<const char*>(field->encoded.data()), field->encoded.size());
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

ByteChain byte_chain_of(std::string text) {
  ByteChain chain;
  chain.own(std::move(text));
  return chain;
}

// The raw elements; empty if there are none.
Bytes raw_of(Bytes tensor) {
  Bytes raw;
  while (const auto field = next_field(tensor))
    if (field->number == Proto::kRawDataFieldNumber && field->type == WireType::kBytes)
      raw = field->value;
  return raw;
}

// The new elements, converted to the tensor's type. Throws ConfigError if extents or types do not
// match.
Array checked(const Array& elements, const Proto& head, const std::string& what) {
  const Extents extents(head.dims().begin(), head.dims().end());
  if (elements.extents != extents)
    throw ConfigError("{}: its new elements have extents {}; must have {}",
                      what,
                      to_string(elements.extents),
                      to_string(extents));
  const std::optional<ElementType> type = element_type_of(head.data_type());
  if (!type || *type == ElementType::kString)
    throw ConfigError("{}: its elements are not numbers and cannot be replaced", what);
  return converted(elements, *type, what);
}

// Size of the elements of an external tensor.
size_t external_bytes(const Proto& head,
                      const ExternalReference& reference,
                      const std::string& what) {
  if (reference.length) return *reference.length;
  const std::optional<ElementType> type = element_type_of(head.data_type());
  if (!type)
    throw ConfigError(
        "{}: its external data has no length; must have one, because its type is unknown", what);
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

ByteChain TensorWriter::rewrite(Bytes tensor, const Array* elements, const std::string& what) {
  const Proto head = head_of(tensor);
  if (elements != nullptr) kept_.push_back(checked(*elements, head, what));
  const Array* now = elements != nullptr ? &kept_.back() : nullptr;
  if (head.data_location() == Proto::EXTERNAL) {
    const ExternalReference old = external_reference_of(head, what);
    const size_t bytes = now != nullptr ? now->bytes() : external_bytes(head, old, what);
    auto data = now != nullptr ? now->data : external_.read(old, bytes, 1, what);
    return rewrite_external(tensor, old, std::move(data), bytes);
  }
  const Bytes raw = raw_of(tensor);
  if (move_outside_ && now != nullptr && now->bytes() >= kMinOutsideBytes)
    return move_outside(tensor, now->data, now->bytes());
  if (move_outside_ && raw.size() >= kMinOutsideBytes)
    return move_outside(tensor, {std::shared_ptr<const std::byte>(), raw.data()}, raw.size());
  if (now != nullptr) return rewrite_inside(tensor, *now);
  ByteChain same;
  same.add(tensor);
  return same;
}

// Writes the elements to the field in which they were.
ByteChain TensorWriter::rewrite_inside(Bytes tensor, const Array& elements) {
  bool written = false;
  return rewrite_message(tensor, [&](const WireField& field) -> std::optional<ByteChain> {
    if (!has_elements(field.number)) return std::nullopt;
    if (std::exchange(written, true)) return ByteChain();
    if (field.number != Proto::kRawDataFieldNumber)
      return byte_chain_of(bytes_field(field.number, packed(elements)));
    ByteChain raw, replacement;
    raw.add({elements.data.get(), elements.bytes()});
    replacement.field(field.number, std::move(raw));
    return replacement;
  });
}

ByteChain TensorWriter::rewrite_external(Bytes tensor,
                                         const ExternalReference& old,
                                         std::shared_ptr<const std::byte> data,
                                         size_t bytes) {
  const uint64_t offset = put_outside(std::move(data), bytes, &old);
  bool has_offset = false;
  ByteChain result =
      rewrite_message(tensor, [&](const WireField& field) -> std::optional<ByteChain> {
        if (field.number != Proto::kExternalDataFieldNumber) return std::nullopt;
        const std::string key = text_of(field.value, 1);
        const std::string value = text_of(field.value, 2);
        if (key == "checksum") return ByteChain();  // drops that of the old elements
        std::string now = value;
        if (key == "location") now = location_;
        if (key == "offset") now = std::to_string(offset);
        if (key == "length") now = std::to_string(bytes);
        has_offset = has_offset || key == "offset";
        if (now == value) return std::nullopt;
        return byte_chain_of(entry_field(key, now));
      });
  if (!has_offset && offset > 0) result.own(entry_field("offset", std::to_string(offset)));
  return result;
}

ByteChain TensorWriter::move_outside(Bytes tensor,
                                     std::shared_ptr<const std::byte> data,
                                     size_t bytes) {
  const uint64_t offset = put_outside(std::move(data), bytes, nullptr);
  ByteChain result =
      rewrite_message(tensor, [&](const WireField& field) -> std::optional<ByteChain> {
        const bool dropped = has_elements(field.number) ||
                             field.number == Proto::kExternalDataFieldNumber ||
                             field.number == Proto::kDataLocationFieldNumber;
        return dropped ? std::optional<ByteChain>(ByteChain()) : std::nullopt;
      });
  result.own(entry_field("location", location_) + entry_field("offset", std::to_string(offset)) +
             entry_field("length", std::to_string(bytes)));
  std::string location;
  append_tag(location, Proto::kDataLocationFieldNumber, WireType::kVarint);
  append_varint(location, Proto::EXTERNAL);
  result.own(std::move(location));
  return result;
}

// A tensor keeps its offset if the preceding ones end shortly before it. So a file that is
// rewritten without changes stays the same.
uint64_t TensorWriter::put_outside(std::shared_ptr<const std::byte> data,
                                   size_t bytes,
                                   const ExternalReference* old) {
  uint64_t offset = (end_ + kAlignment - 1) / kAlignment * kAlignment;
  if (old != nullptr) {
    if (home_.empty()) home_ = old->location;
    if (old->location == home_ && old->offset >= end_ && old->offset - end_ <= kMaxGap)
      offset = old->offset;
  }
  end_ = offset + bytes;
  outside_.push_back({offset, std::move(data), bytes});
  return offset;
}

}  // namespace lockstep::onnx
