#include "launcher/launch/messages.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/text.h"

namespace lockstep::launch {
namespace {

struct Header {
  static constexpr uint32_t kMagic = 0x6c61734c;  // "Lsal" in memory
  static constexpr uint32_t kMaxBytes = 64U << 20;

  uint32_t magic = kMagic;
  MessageKind kind = MessageKind::kBeat;
  uint8_t reserved[3] = {};
  int32_t rank = 0, value = 0;
  uint32_t bytes = 0;
};

// Paths and arguments are arbitrary bytes, JSON texts are characters: a byte is encoded as the
// character with its number.
std::string to_characters(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte >= 0x80) text.push_back(static_cast<char>(0xC0 | byte >> 6));
    text.push_back(byte < 0x80 ? c : static_cast<char>(0x80 | (byte & 0x3F)));
  }
  return text;
}

std::string to_bytes(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    auto byte = static_cast<uint8_t>(text[i]);
    if (byte >= 0x80 && i + 1 < text.size())
      byte = static_cast<uint8_t>(byte << 6 | (static_cast<uint8_t>(text[++i]) & 0x3F));
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

std::string string_of(const Json& text) { return to_bytes(text.get<std::string>()); }

Json array_of(const std::vector<std::string>& strings) {
  Json array = Json::array();
  for (const std::string& string : strings) array.push_back(to_characters(string));
  return array;
}

std::vector<std::string> strings_of(const Json& array) {
  std::vector<std::string> strings;
  for (const Json& element : array) strings.push_back(string_of(element));
  return strings;
}

}  // namespace

std::string encode(const Message& message) {
  Header header;
  header.kind = message.kind;
  header.rank = message.rank;
  header.value = message.value;
  header.bytes = static_cast<uint32_t>(message.text.size());
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  return bytes + message.text;
}

std::optional<Message> MessageReader::next() {
  Header header;
  const size_t seen = std::min(bytes_.size(), sizeof(header));
  std::memcpy(&header, bytes_.data(), seen);
  const bool known = header.magic == Header::kMagic && header.kind <= MessageKind::kBeat &&
                     header.bytes <= Header::kMaxBytes;
  if (seen >= sizeof(header.magic) && !known)
    throw CommError("it sent '{}', which is not a message of an agent",
                    escape_controls(bytes_.substr(0, 80)));
  if (seen < sizeof(header) || bytes_.size() < sizeof(header) + header.bytes) return std::nullopt;
  Message message{
      header.kind, header.rank, header.value, bytes_.substr(sizeof(header), header.bytes)};
  bytes_.erase(0, sizeof(header) + header.bytes);
  return message;
}

std::string to_text(const StartOrder& order) {
  Json ranks = Json::array();
  for (const StartOrder::Rank& rank : order.ranks)
    ranks.push_back(Json::object({{"rank", rank.rank}, {"variables", array_of(rank.variables)}}));
  return Json::object({{"folder", to_characters(order.folder)},
                       {"words", array_of(order.words)},
                       {"ranks", ranks},
                       {"silence_s", order.silence_s},
                       {"blocked_s", order.blocked_s}})
      .dump();
}

StartOrder start_order_from(const std::string& text) {
  const Json json = Json::parse(text);
  StartOrder order{.folder = string_of(json["folder"]), .words = strings_of(json["words"])};
  for (const Json& rank : json["ranks"])
    order.ranks.push_back({rank["rank"].get<int>(), strings_of(rank["variables"])});
  order.silence_s = json["silence_s"].get<double>();
  order.blocked_s = json["blocked_s"].get<double>();
  return order;
}

}  // namespace lockstep::launch
