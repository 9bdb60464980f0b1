#include "runtime/chat/value.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "runtime/chat/letter_case.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::chat {
namespace {

constexpr uint16_t kMaxDepth = 200;

template <typename Values, typename DepthOf>
uint16_t depth_of(const Values& values, DepthOf depth_of_value) {
  uint16_t depth = 0;
  for (const auto& value : values) depth = std::max(depth, depth_of_value(value));
  if (depth >= kMaxDepth) throw TemplateProblem("values nested more than {} deep", kMaxDepth);
  return static_cast<uint16_t>(depth + 1);
}

uint32_t text_weight(size_t bytes) {
  return static_cast<uint32_t>(std::min<size_t>(bytes + 1, UINT32_MAX));
}

// Adds the weight of a part.
uint32_t weight_with(uint32_t weight, size_t more) {
  if (more > kMaxValueBytes - weight)
    throw TemplateProblem("a value of more than {} MiB", kMaxValueBytes >> 20);
  return weight + static_cast<uint32_t>(more);
}

void check_length(const std::string& text) {
  if (text.size() > kMaxTextBytes)
    throw TemplateProblem("a text of more than {} MiB", kMaxTextBytes >> 20);
}

// Values that could contain themselves must not be inside others.
void check_plain(const Value& value) {
  if (value.is(Value::Kind::kNamespace) || value.is(Value::Kind::kLoop) ||
      value.is(Value::Kind::kMacro))
    throw TemplateProblem("a value of type {} cannot be stored in another value",
                          value.kind_name());
}

}  // namespace

Value Value::undefined(std::string name) {
  Value value = text(std::move(name));
  value.kind_ = Kind::kUndefined;
  return value;
}

Value Value::boolean(bool flag) {
  Value value(Kind::kBoolean);
  value.integer_ = flag ? 1 : 0;
  return value;
}

Value Value::integer(int64_t number) {
  Value value(Kind::kInteger);
  value.integer_ = number;
  return value;
}

Value Value::number(double number) {
  Value value(Kind::kDouble);
  value.number_ = number;
  return value;
}

Value Value::text(std::string bytes) {
  const uint32_t weight = text_weight(bytes.size());
  Value value(Kind::kText, std::make_shared<const std::string>(std::move(bytes)));
  value.weight_ = weight;
  return value;
}

Value Value::list(List values, bool tuple) {
  Value value(Kind::kList);
  for (const Value& element : values) {
    check_plain(element);
    value.weight_ = weight_with(value.weight_, element.weight());
  }
  value.depth_ = depth_of(values, [](const Value& element) { return element.depth_; });
  value.tuple_ = tuple;
  value.held_ = std::make_shared<const List>(std::move(values));
  return value;
}

Value Value::iterable(Iterable::Kind kind, List values) {
  Value value = list(std::move(values));
  value.kind_ = Kind::kIterable;
  value.held_ = std::make_shared<const Iterable>(Iterable{kind, value.shared_list()});
  return value;
}

Value Value::mapping(Members members) {
  Value value(Kind::kMapping);
  for (const auto& [name, member] : members) {
    check_plain(member);
    value.weight_ = weight_with(value.weight_, text_weight(name.size()) + member.weight());
  }
  value.depth_ = depth_of(members, [](const auto& member) { return member.second.depth_; });
  value.held_ = std::make_shared<const Members>(std::move(members));
  return value;
}

Value Value::new_namespace(Members members) {
  for (const auto& [name, member] : members) check_plain(member);
  return Value(Kind::kNamespace, std::make_shared<Namespace>(Namespace{std::move(members)}));
}

Value Value::loop(std::shared_ptr<const List> items, size_t index) {
  return Value(Kind::kLoop, std::make_shared<const Loop>(Loop{std::move(items), index}));
}

Value Value::macro(const MacroNode* node) {
  Value value(Kind::kMacro);
  value.macro_ = node;
  return value;
}

Value Value::from_json(const Json& json) {
  switch (json.kind()) {
    case Json::Kind::kNull: return {};
    case Json::Kind::kBoolean: return boolean(json.get<bool>());
    case Json::Kind::kInteger:
    case Json::Kind::kUnsigned: try { return integer(json.get<int64_t>());
      } catch (const JsonError&) {
        throw TemplateProblem("an integer of more than 64 bits");
      }
    case Json::Kind::kDouble: return number(json.get<double>());
    case Json::Kind::kString: return text(json.get<std::string>());
    case Json::Kind::kArray: {
      List values;
      for (const Json& element : json) values.push_back(from_json(element));
      return list(std::move(values));
    }
    case Json::Kind::kObject: {
      Members members;
      const Json* value = json.begin();
      for (const std::string& name : json.names()) members.emplace_back(name, from_json(*value++));
      return mapping(std::move(members));
    }
  }
  return {};
}

std::shared_ptr<const Value::List> Value::shared_list() const {
  return std::static_pointer_cast<const List>(held_);
}

bool Value::truth() const {
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBoolean:
    case Kind::kInteger: return integer_ != 0;
    case Kind::kDouble: return number_ != 0;
    case Kind::kText: return !as_text().empty();
    case Kind::kList: return !as_list().empty();
    case Kind::kMapping: return !as_mapping().empty();
    case Kind::kIterable:
      return as_iterable().kind == Iterable::Kind::kGenerator || !as_iterable().items->empty();
    default: return true;
  }
}

const char* Value::kind_name() const {
  switch (kind_) {
    case Kind::kUndefined: return "undefined value";
    case Kind::kNone: return "None";
    case Kind::kBoolean: return "bool";
    case Kind::kInteger: return "int";
    case Kind::kDouble: return "float";
    case Kind::kText: return "str";
    case Kind::kList: return tuple_ ? "tuple" : "list";
    case Kind::kMapping: return "dict";
    case Kind::kIterable:
      return is_iterable(Iterable::Kind::kRange)  ? "range"
             : is_iterable(Iterable::Kind::kView) ? "view of a dict"
                                                  : "generator";
    case Kind::kNamespace: return "namespace";
    case Kind::kLoop: return "loop";
    case Kind::kMacro: return "macro";
  }
  return "";
}

std::string Value::shown() const {
  if (is_text()) return as_text();
  if (is_undefined()) return {};
  return repr();
}

std::string Value::repr() const {
  std::string text;
  append_repr(&text);
  return text;
}

namespace {

// Python uses single quotation marks, unless the text contains them and no double ones.
void append_quoted(const std::string& text, std::string* out) {
  const bool single = text.find('\'') == std::string::npos || text.find('"') != std::string::npos;
  const char mark = single ? '\'' : '"';
  *out += mark;
  for (size_t i = 0; i < text.size();) {
    check_length(*out);
    const tokenizer::DecodedChar c = tokenizer::decode_char(&text[i]);
    if (c.code == static_cast<unsigned char>(mark) || c.code == '\\') {
      *out += '\\';
      *out += text[i];
    } else if (c.code == '\n') {
      *out += "\\n";
    } else if (c.code == '\r') {
      *out += "\\r";
    } else if (c.code == '\t') {
      *out += "\\t";
    } else if (is_printable(c.code)) {
      out->append(text, i, c.bytes);
    } else if (c.code < 0x100) {
      *out += fmt::format("\\x{:02x}", c.code);
    } else if (c.code < 0x10000) {
      *out += fmt::format("\\u{:04x}", c.code);
    } else {
      *out += fmt::format("\\U{:08x}", c.code);
    }
    i += c.bytes;
  }
  *out += mark;
}

}  // namespace

void Value::append_repr(std::string* out) const {
  check_length(*out);
  switch (kind_) {
    case Kind::kUndefined: *out += "Undefined"; return;
    case Kind::kNone: *out += "None"; return;
    case Kind::kBoolean: *out += integer_ != 0 ? "True" : "False"; return;
    case Kind::kInteger: *out += fmt::format("{}", integer_); return;
    case Kind::kDouble: *out += python_number(number_); return;
    case Kind::kText: append_quoted(as_text(), out); return;
    case Kind::kList: {
      *out += tuple_ ? '(' : '[';
      const List& values = as_list();
      for (size_t i = 0; i < values.size(); ++i) {
        if (i > 0) *out += ", ";
        values[i].append_repr(out);
      }
      if (tuple_ && values.size() == 1) *out += ',';
      *out += tuple_ ? ')' : ']';
      return;
    }
    case Kind::kMapping: {
      *out += '{';
      const char* separator = "";
      for (const auto& [name, member] : as_mapping()) {
        *out += separator;
        append_quoted(name, out);
        *out += ": ";
        member.append_repr(out);
        separator = ", ";
      }
      *out += '}';
      return;
    }
    default: throw TemplateProblem("a value of type {} cannot be printed as text", kind_name());
  }
}

const Value* Value::find(std::string_view name) const {
  if (is_mapping()) return find_member(as_mapping(), name);
  return is(Kind::kNamespace) ? find_member(as_namespace().members, name) : nullptr;
}

const Value* find_member(const Value::Members& members, std::string_view name) {
  for (const auto& [key, member] : members)
    if (key == name) return &member;
  return nullptr;
}

Value& member_named(Value::Members& members, const std::string& name) {
  for (auto& [key, member] : members)
    if (key == name) return member;
  return members.emplace_back(name, Value()).second;
}

namespace {

// Compares members regardless of their order.
bool same_members(const Value::Members& a, const Value::Members& b) {
  if (a.size() != b.size()) return false;
  std::unordered_map<std::string_view, const Value*> others;
  for (const auto& [name, member] : b) others.emplace(name, &member);
  return std::ranges::all_of(a, [&](const auto& member) {
    const auto found = others.find(member.first);
    return found != others.end() && member.second == *found->second;
  });
}

}  // namespace

bool operator==(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.integer_ == b.integer_;
    return a.as_double() == b.as_double();
  }
  if (a.kind_ != b.kind_) return false;
  switch (a.kind_) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone: return true;
    case Value::Kind::kText: return a.as_text() == b.as_text();
    case Value::Kind::kList: return a.tuple_ == b.tuple_ && a.as_list() == b.as_list();
    case Value::Kind::kMapping: return same_members(a.as_mapping(), b.as_mapping());
    case Value::Kind::kIterable:
      if (a.held_ != b.held_ && !a.is_iterable(Value::Iterable::Kind::kGenerator) &&
          a.as_iterable().kind == b.as_iterable().kind)
        throw TemplateProblem("a comparison of two values of type '{}' is not supported",
                              a.kind_name());
      return a.held_ == b.held_;
    case Value::Kind::kMacro: return a.macro_ == b.macro_;
    default: return a.held_ == b.held_;
  }
}

std::string python_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t e = text.find('e');
  const int exponent = std::stoi(std::string(text.substr(e + 1)));
  std::string digits, sign;
  for (const char c : text.substr(0, e)) {
    if (c == '-') sign = "-";
    if (c >= '0' && c <= '9') digits += c;
  }
  const auto count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    std::string mantissa = digits.substr(0, 1);
    if (count > 1) mantissa += "." + digits.substr(1);
    return fmt::format(
        "{}{}e{}{:02}", sign, mantissa, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1)
    return sign + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  return sign + digits.substr(0, static_cast<size_t>(exponent) + 1) + "." +
         digits.substr(static_cast<size_t>(exponent) + 1);
}

namespace {

class JsonWriter {
 public:
  JsonWriter(int indent, bool sort_keys, bool ascii)
      : indent_(indent), sort_keys_(sort_keys), ascii_(ascii) {}

  void write(const Value& value, int level) {
    check_length(out);
    switch (value.kind()) {
      case Value::Kind::kNone: out += "null"; return;
      case Value::Kind::kBoolean: out += value.as_integer() != 0 ? "true" : "false"; return;
      case Value::Kind::kInteger: out += fmt::format("{}", value.as_integer()); return;
      case Value::Kind::kDouble: number(value.as_double()); return;
      case Value::Kind::kText: text(value.as_text()); return;
      case Value::Kind::kList:
        each(value.as_list(), '[', ']', level, [&](const Value& element) {
          write(element, level + 1);
        });
        return;
      case Value::Kind::kMapping: {
        Value::Members members = value.as_mapping();
        // Python sorts by code points, which is the byte order of UTF-8.
        if (sort_keys_)
          std::ranges::sort(members, {}, [](const auto& member) { return member.first; });
        each(members, '{', '}', level, [&](const auto& member) {
          text(member.first);
          out += ": ";
          write(member.second, level + 1);
        });
        return;
      }
      default:
        throw TemplateProblem("tojson: a value of type {} is not allowed", value.kind_name());
    }
  }

  std::string out;

 private:
  template <typename Values, typename F>
  void each(const Values& values, char open, char close, int level, F f) {
    out += open;
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out += indent_ < 0 ? ", " : ",";
      new_line(level + 1);
      f(values[i]);
    }
    if (!values.empty()) new_line(level);
    out += close;
  }
  void new_line(int level) {
    if (indent_ < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(indent_ * level), ' ');
  }
  void number(double value) {
    if (std::isnan(value)) {
      out += "NaN";
    } else if (std::isinf(value)) {
      out += value > 0 ? "Infinity" : "-Infinity";
    } else {
      out += python_number(value);
    }
  }
  void text(const std::string& text) {
    out += '"';
    for (size_t i = 0; i < text.size();) {
      check_length(out);
      const tokenizer::DecodedChar c = tokenizer::decode_char(&text[i]);
      character(c, std::string_view(text).substr(i, c.bytes));
      i += c.bytes;
    }
    out += '"';
  }
  void character(tokenizer::DecodedChar c, std::string_view bytes) {
    switch (c.code) {
      case '"': out += "\\\""; return;
      case '\\': out += "\\\\"; return;
      case '\n': out += "\\n"; return;
      case '\r': out += "\\r"; return;
      case '\t': out += "\\t"; return;
      case '\b': out += "\\b"; return;
      case '\f': out += "\\f"; return;
      default: break;
    }
    if (c.code >= 0x20 && (!ascii_ || c.code < 0x7f)) {
      out += bytes;
    } else if (c.code < 0x10000) {
      out += fmt::format("\\u{:04x}", c.code);
    } else {
      const uint32_t rest = c.code - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
    }
  }

  int indent_;
  bool sort_keys_, ascii_;
};

}  // namespace

std::string python_json(const Value& value, int indent, bool sort_keys, bool ascii) {
  JsonWriter writer(indent, sort_keys, ascii);
  writer.write(value, 0);
  return std::move(writer.out);
}

}  // namespace lockstep::chat
