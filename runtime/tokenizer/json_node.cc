#include "runtime/tokenizer/json_node.h"

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

constexpr size_t kMaxShown = 200;  // max bytes of a value in a message
const Json kNull;

}  // namespace

JsonNode JsonNode::at(std::string_view name) const {
  const Json* member = value_->find(name);
  if (member == nullptr) fail(fmt::format("has no '{}'", name));
  return find(name);
}

JsonNode JsonNode::find(std::string_view name) const {
  const Json* found = value_->find(name);
  return member(name, found == nullptr ? kNull : *found);
}

JsonNode JsonNode::member(std::string_view name, const Json& value) const {
  return {value, file_, path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name)};
}

JsonNode JsonNode::element(size_t index) const {
  return {value_->at(index), file_, fmt::format("{}[{}]", path_, index)};
}

size_t JsonNode::elements() const {
  if (value_->kind() != Json::Kind::kArray) refuse("an array");
  return value_->size();
}

bool JsonNode::flag() const {
  if (value_->kind() != Json::Kind::kBoolean) refuse("true, false");
  return value_->get<bool>();
}

std::string JsonNode::text() const {
  if (!value_->is_string()) refuse("a text");
  return value_->get<std::string>();
}

std::string JsonNode::one_char() const {
  const std::string found = text();
  if (found.empty() || decode_char(found.data()).bytes != found.size()) refuse("one character");
  return found;
}

double JsonNode::number() const {
  try {
    return value_->get<double>();
  } catch (const JsonError&) {
    refuse("a number");
  }
}

uint32_t JsonNode::id() const {
  try {
    const auto found = value_->get<int64_t>();
    if (found >= 0 && found <= INT32_MAX) return static_cast<uint32_t>(found);
  } catch (const JsonError&) {
  }
  refuse("a whole number below 2^31");
}

bool JsonNode::flag_or(std::string_view name, bool otherwise) const {
  const JsonNode member = find(name);
  return member.is_null() ? otherwise : member.flag();
}

std::string JsonNode::text_or(std::string_view name, std::string otherwise) const {
  const JsonNode member = find(name);
  return member.is_null() ? std::move(otherwise) : member.text();
}

void JsonNode::refuse(std::string_view allowed) const {
  std::string shown = value_->dump();
  if (shown.size() > kMaxShown) {
    size_t end = kMaxShown;
    while ((static_cast<uint8_t>(shown[end]) & 0xC0) == 0x80) --end;
    shown = shown.substr(0, end) + "...";
  }
  fail(fmt::format("value is {}; allowed: {}", shown, allowed));
}

std::string JsonNode::name() const {
  return path_.empty() ? file_ : fmt::format("{}: {}", file_, escape_controls(path_));
}

void JsonNode::fail(std::string_view problem) const {
  throw DataError("{}: {}", name(), escape_controls(problem));
}

}  // namespace lockstep::tokenizer
