#pragma once
// Protobuf's encoding, as far as a message can be copied field by field with some of them changed: what
// stays, stays byte for byte, known or not.

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
  Bytes whole;  // with its tag
  Bytes value;  // without tag and length

  std::string_view text() const {
    return {reinterpret_cast<const char*>(value.data()), value.size()};
  }
};

// Takes the first field from `rest`; nothing at its end. Throws ConfigError where there is none that is
// whole, or one of a group, which no file has had for long.
std::optional<WireField> next_field(Bytes& rest);

// The text of the last field of that number in a message, as protobuf takes it; empty where there is
// none.
std::string text_of(Bytes message, uint32_t number);

void append_varint(std::string& to, uint64_t value);
void append_tag(std::string& to, uint32_t number, WireType type);
// A field with a text, a message or packed numbers.
std::string bytes_field(uint32_t number, std::string_view value);

// Bytes in pieces, most of which lie elsewhere: in a mapped file, in arrays.
class Rope {
 public:
  void add(Bytes piece);       // which must outlive the rope
  void own(std::string text);  // which it keeps
  void append(Rope other);
  // A field of type kBytes whose value is `value`.
  void field(uint32_t number, Rope value);

  uint64_t size() const { return size_; }
  const std::vector<Bytes>& pieces() const { return pieces_; }
  bool is(Bytes bytes) const;  // whether it is just this place in memory

 private:
  std::vector<Bytes> pieces_;
  std::list<std::string> owned_;
  uint64_t size_ = 0;
};

// The message with some fields replaced by what `change` gives for them, whole: another field, several or
// none. Where it gives nothing the field is copied.
using Change = std::function<std::optional<Rope>(const WireField&)>;
Rope rewrite_message(Bytes message, const Change& change);

// For a Change: the field with another value; nothing where the value is still the same place in memory.
std::optional<Rope> with_value(const WireField& field, Rope value);

}  // namespace lockstep::onnx
