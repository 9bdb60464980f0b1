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
  static constexpr uint32_t kMostBytes = 64U << 20;

  uint32_t magic = kMagic;
  MessageKind kind = MessageKind::kBeat;
  uint8_t reserved[3] = {};
  int32_t rank = 0, value = 0;
  uint32_t bytes = 0;
};

std::vector<std::string> strings_of(const Json& array) {
  std::vector<std::string> strings;
  for (const Json& element : array) strings.push_back(element.get<std::string>());
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
                     header.bytes <= Header::kMostBytes;
  if (seen >= sizeof(header.magic) && !known)
    throw CommError("it says '{}', which is no message of an agent",
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
    ranks.push_back(Json::object({{"rank", rank.rank}, {"variables", rank.variables}}));
  return Json::object({{"folder", order.folder}, {"words", order.words}, {"ranks", ranks}}).dump();
}

StartOrder start_order_from(const std::string& text) {
  const Json json = Json::parse(text);
  StartOrder order{json["folder"].get<std::string>(), strings_of(json["words"]), {}};
  for (const Json& rank : json["ranks"])
    order.ranks.push_back({rank["rank"].get<int>(), strings_of(rank["variables"])});
  return order;
}

}  // namespace lockstep::launch
