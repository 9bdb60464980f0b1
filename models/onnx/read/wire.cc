#include "models/onnx/read/wire.h"

#include <utility>

#include "runtime/base/error.h"

namespace lockstep::onnx {
namespace {

std::optional<uint64_t> take_varint(Bytes& rest) {
  uint64_t value = 0;
  for (size_t i = 0; i < rest.size() && i < 10; ++i) {
    const auto byte = static_cast<uint64_t>(rest[i]);
    value |= (byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      rest = rest.subspan(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

// The number of bytes of the value after the tag. For kBytes, takes the length prefix from `rest`.
std::optional<uint64_t> take_length(Bytes& rest, uint64_t type) {
  switch (type) {
    case 0: {
      Bytes after = rest;
      if (!take_varint(after)) return std::nullopt;
      return rest.size() - after.size();
    }
    case 1: return 8;
    case 2: return take_varint(rest);
    case 5: return 4;
    default: return std::nullopt;
  }
}

}  // namespace

std::optional<WireField> next_field(Bytes& rest) {
  if (rest.empty()) return std::nullopt;
  const Bytes begin = rest;
  const std::optional<uint64_t> tag = take_varint(rest);
  const std::optional<uint64_t> length = tag ? take_length(rest, *tag & 7) : std::nullopt;
  if (!length || *length > rest.size())
    throw ConfigError(
        "a message of the file is damaged, or has a field of an unsupported wire type");
  WireField field;
  field.number = static_cast<uint32_t>(*tag >> 3);
  field.type = static_cast<WireType>(*tag & 7);
  field.value = rest.first(*length);
  rest = rest.subspan(*length);
  field.encoded = begin.first(begin.size() - rest.size());
  return field;
}

std::string text_of(Bytes message, uint32_t number) {
  std::string text;
  while (const auto field = next_field(message))
    if (field->number == number && field->type == WireType::kBytes) text = field->text();
  return text;
}

void append_varint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

void append_tag(std::string& to, uint32_t number, WireType type) {
  append_varint(to, uint64_t{number} << 3 | static_cast<uint64_t>(type));
}

std::string bytes_field(uint32_t number, std::string_view value) {
  std::string field;
  append_tag(field, number, WireType::kBytes);
  append_varint(field, value.size());
  return field.append(value);
}

void ByteChain::add(Bytes piece) {
  if (piece.empty()) return;
  size_ += piece.size();
  if (!pieces_.empty() && pieces_.back().data() + pieces_.back().size() == piece.data())
    pieces_.back() = {pieces_.back().data(), pieces_.back().size() + piece.size()};
  else
    pieces_.push_back(piece);
}

void ByteChain::own(std::string text) {
  owned_.push_back(std::move(text));
  add(std::as_bytes(std::span(owned_.back())));
}

void ByteChain::append(ByteChain other) {
  owned_.splice(owned_.end(), other.owned_);
  for (const Bytes piece : other.pieces_) add(piece);
}

void ByteChain::field(uint32_t number, ByteChain value) {
  std::string head;
  append_tag(head, number, WireType::kBytes);
  append_varint(head, value.size());
  own(std::move(head));
  append(std::move(value));
}

bool ByteChain::is(Bytes bytes) const {
  if (bytes.empty() || pieces_.empty()) return bytes.empty() && pieces_.empty();
  return pieces_.size() == 1 && pieces_[0].data() == bytes.data() &&
         pieces_[0].size() == bytes.size();
}

ByteChain rewrite_message(Bytes message, const Change& change) {
  ByteChain result;
  while (const auto field = next_field(message)) {
    if (std::optional<ByteChain> changed = change(*field))
      result.append(std::move(*changed));
    else
      result.add(field->encoded);
  }
  return result;
}

std::optional<ByteChain> with_value(const WireField& field, ByteChain value) {
  if (value.is(field.value)) return std::nullopt;
  ByteChain changed;
  changed.field(field.number, std::move(value));
  return changed;
}

}  // namespace lockstep::onnx
