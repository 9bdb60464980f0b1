#pragma once
// Protobuf's wire format, for rewriting a message without parsing it.
//
// A trained network is written as a copy of its ONNX file in which only the elements of some
// tensors change. A parser would lose fields that it does not know and would hold gigabytes of
// elements twice. Instead, rewrite_message() walks over the fields of a message. A Change callback
// may replace a field, and every other field is copied byte for byte, known or not. To change a
// nested message, the callback rewrites the field's value in the same way.
//
// The length of a nested message is encoded before it, so a new length must propagate to all
// messages around it. For this reason the result is a ByteChain, a list of pieces (a "rope") whose
// total size is known: field() puts tag and length in front of a chain. The pieces point into the
// mapped old file or into arrays, and only new bytes are owned by the chain, so that nothing large
// is copied. with_value() notices a value that did not change, because it is a single piece at the
// old address, and then keeps the old field. add() merges adjacent pieces, so a file without
// changes is one piece.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::onnx {

using Bytes = std::span<const std::byte>;

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct WireField {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  Bytes encoded;  // the encoded field, with its tag
  Bytes value;    // without tag and length

  std::string_view text() const {
    return {reinterpret_cast<const char*>(value.data()), value.size()};
  }
};

// Takes the first field from `rest`; none at its end. Throws ConfigError if the field is incomplete
// or of a wire type that is not in WireType, such as the obsolete groups.
std::optional<WireField> next_field(Bytes& rest);

// The text of the field with this number; empty if there is none. If the field is repeated, the
// last one counts, as in protobuf.
std::string text_of(Bytes message, uint32_t number);

void append_varint(std::string& to, uint64_t value);
void append_tag(std::string& to, uint32_t number, WireType type);
// Encodes a field of type kBytes: a text, a message or packed numbers.
std::string bytes_field(uint32_t number, std::string_view value);

// A sequence of bytes in pieces, most of which are borrowed from a mapped file or from arrays.
class ByteChain {
 public:
  void add(Bytes piece);       // borrows: `piece` must outlive the chain
  void own(std::string text);  // takes ownership
  void append(ByteChain other);
  // A field of type kBytes whose value is `value`.
  void field(uint32_t number, ByteChain value);

  uint64_t size() const { return size_; }
  const std::vector<Bytes>& pieces() const { return pieces_; }
  // Whether it is a single piece with the address and size of `bytes`.
  bool is(Bytes bytes) const;

 private:
  std::vector<Bytes> pieces_;
  std::list<std::string> owned_;
  uint64_t size_ = 0;
};

// Copies a message, but replaces each field by what `change` returns for it: the encoded bytes of
// any number of fields. If `change` returns none, the field is copied.
using Change = std::function<std::optional<ByteChain>(const WireField&)>;
ByteChain rewrite_message(Bytes message, const Change& change);

// For use in a Change: the field with a new value; none if `value` is the old one.
std::optional<ByteChain> with_value(const WireField& field, ByteChain value);

}  // namespace lockstep::onnx
