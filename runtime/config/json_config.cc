
#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/odd_characters.h"
#include "runtime/config/field_value.h"
#include "runtime/config/limits.h"
#include "runtime/config/names.h"
#include "runtime/config/text_parts.h"

namespace lockstep::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// The schema's name of a field, or the same in lowerCamelCase.
const FieldDescriptor* field_of(const Descriptor& type, const std::string& name) {
  if (const FieldDescriptor* field = type.FindFieldByName(name); field != nullptr) return field;
  for (int i = 0; i < type.field_count(); ++i)
    if (type.field(i)->json_name() == name) return type.field(i);
  return nullptr;
}

bool is_integer(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_INT64 ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64;
}

// A whole number that is written with a fraction or an exponent, such as 1e3, in digits. Other
// texts stay as they are.
std::string in_digits(const std::string& number) {
  constexpr double kMaxExact = 9007199254740992;  // 2^53
  if (number.find_first_of(".eE") == std::string::npos) return number;
  try {
    const auto value = Json::parse(number).get<double>();
    if (std::floor(value) == value && std::fabs(value) <= kMaxExact)
      return fmt::format("{}", static_cast<int64_t>(value));
  } catch (const JsonError&) {
  }
  return number;
}

// A field's value that is neither an array nor an object.
struct Scalar {
  size_t at = 0;
  bool quoted = false;
  std::string text;  // without quotes
};

// Reads the text once, from its beginning. The schema limits how deep objects are nested.
class Reader {
 public:
  Reader(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {}

  void read(Message* config) {
    read_object(config, "");
    if (peek() != '\0')
      fail(at_,
           peek() == '{' ? "has a second object; allowed: one object, in braces"
                         : "has text after the end of the config; allowed: one object, in braces");
  }

 private:
  [[noreturn]] void fail(size_t at, const std::string& message) const {
    throw ConfigError("{}:{}: {}", origin_, place_in(text_, at), message);
  }

  // The next character that is not a blank; '\0' at the end of the text.
  char peek() {
    at_ = std::min(text_.find_first_not_of(" \t\n", at_), text_.size());
    if (at_ == text_.size()) return '\0';
    const char c = text_[at_];
    if (c == '#' ||
        (c == '/' && at_ + 1 < text_.size() && (text_[at_ + 1] == '/' || text_[at_ + 1] == '*')))
      fail(at_,
           "JSON has no comments; remove it, or write the config in protobuf text format, where "
           "comments begin with #");
    if (c == '\'') fail(at_, "names and text are in double quotes in JSON, not in single quotes");
    if (static_cast<unsigned char>(c) >= 0x80) fail(at_, describe_odd_character(text_, at_));
    return c;
  }

  // "'x'" for messages.
  std::string found(char c) const {
    return c == '\0' ? "the end of the file" : in_quotes(std::string_view(&c, 1));
  }

  // Passes an opening bracket.
  void open(char bracket, const char* what) {
    const char c = peek();
    if (c != bracket) fail(at_, fmt::format("expected {}, found {}", what, found(c)));
    ++at_;
  }

  // Whether another member or element follows. Passes the comma before it, or the closing bracket.
  bool more(char bracket, bool first) {
    const char c = peek();
    if (c == bracket) {
      ++at_;
      return false;
    }
    if (first) return true;
    const size_t comma = at_;
    if (c != ',') fail(at_, fmt::format("expected a comma or {}, found {}", bracket, found(c)));
    ++at_;
    if (peek() == bracket) fail(comma, fmt::format("a comma before {}; remove it", bracket));
    return true;
  }

  // The text in double quotes at at_.
  std::string read_quoted() {
    const size_t begin = at_;
    for (++at_; at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n'; ++at_)
      if (text_[at_] == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
    if (at_ >= text_.size() || text_[at_] == '\n')
      fail(begin, "the quotes do not end on this line");
    ++at_;
    try {
      return Json::parse(text_.substr(begin, at_ - begin)).get<std::string>();
    } catch (const JsonError& error) {  // "parse error at ...: ... - invalid string: ..."
      const std::string message = error.what();
      fail(begin, message.substr(std::min(message.find("invalid string"), message.size() - 1)));
    }
  }

  Scalar read_scalar() {
    const char c = peek();
    Scalar scalar{.at = at_, .quoted = c == '"', .text = {}};
    if (scalar.quoted) {
      scalar.text = read_quoted();
      return scalar;
    }
    const size_t end = std::min(text_.find_first_of(" \t\n,:{}[]\"'", at_), text_.size());
    scalar.text = text_.substr(at_, end - at_);
    if (scalar.text.empty()) fail(at_, fmt::format("expected a value, found {}", found(c)));
    if (const size_t odd = find_non_ascii(scalar.text); odd != std::string::npos)
      fail(at_ + odd, describe_odd_character(text_, at_ + odd));
    at_ = end;
    return scalar;
  }

  void read_object(Message* message, const std::string& path) {
    open('{', "a section in braces");
    std::set<const FieldDescriptor*> given;
    for (bool first = true; more('}', first); first = false) {
      const size_t begin = at_;
      if (peek() != '"')
        fail(at_, fmt::format("expected a name in double quotes, found {}", found(peek())));
      const std::string name = read_quoted();
      const FieldDescriptor* field = field_of(*message->GetDescriptor(), name);
      if (field == nullptr) {
        const size_t odd = find_non_ascii(name);
        fail(begin,
             unknown_field_message(*message->GetDescriptor(), name) +
                 (odd == std::string::npos
                      ? ""
                      : fmt::format(" ({})", describe_odd_character(name, odd))));
      }
      const std::string below = path.empty() ? field->name() : path + "." + field->name();
      if (!given.insert(field).second) fail(begin, fmt::format("{} is given twice", below));
      if (peek() != ':')
        fail(at_, fmt::format("expected a colon after {}, found {}", name, found(peek())));
      ++at_;
      read_member(message, *field, below, begin);
    }
  }

  // `begin`: offset of the name.
  void read_member(Message* message,
                   const FieldDescriptor& field,
                   const std::string& path,
                   size_t begin) {
    const bool section = field.message_type() != nullptr;
    const char c = peek();
    const bool bracket = c == '[' || c == '{';
    const bool fits = field.is_repeated() ? c == '[' : section ? c == '{' : !bracket;
    if (!fits) {
      const size_t at = at_;
      if (!bracket && read_null()) return;
      fail(at, wrong_shape(field, path, at));
    }
    if (field.is_repeated()) return read_list(message, field, path);
    if (!section) return read_value(message, field, path);
    const auto& reflection = *message->GetReflection();
    if (const auto* choice = field.real_containing_oneof(); choice != nullptr) {
      const FieldDescriptor* other = reflection.GetOneofFieldDescriptor(*message, choice);
      if (other != nullptr)
        fail(begin,
             fmt::format("{} and {} are both given; allowed: one of them", path, other->name()));
    }
    read_object(reflection.MutableMessage(message, &field), path);
  }

  // Passes a null and returns true, or passes nothing.
  bool read_null() {
    const size_t begin = at_;
    const Scalar scalar = read_scalar();
    if (!scalar.quoted && scalar.text == "null") return true;
    at_ = begin;
    return false;
  }

  std::string wrong_shape(const FieldDescriptor& field, const std::string& path, size_t at) {
    const char c = text_[at];
    const std::string value = c == '['   ? "a list"
                              : c == '{' ? "a section"
                                         : in_quotes(read_scalar().text);
    std::string allowed = describe_type(field);
    if (field.is_repeated()) allowed = "a list in brackets, [...]";
    return fmt::format("{}: value is {}; allowed: {}", path, value, allowed);
  }

  void read_list(Message* message, const FieldDescriptor& field, const std::string& path) {
    open('[', "a list in brackets");
    for (bool first = true; more(']', first); first = false) {
      if (field.message_type() != nullptr) {
        read_object(message->GetReflection()->AddMessage(message, &field), path);
        continue;
      }
      const Scalar scalar = read_scalar();
      with_place(scalar.at, [&] {
        check_quotes(scalar, field, path);
        add_element(path, words(scalar, field), field, message);
      });
    }
  }

  void read_value(Message* message, const FieldDescriptor& field, const std::string& path) {
    const Scalar scalar = read_scalar();
    if (!scalar.quoted && scalar.text == "null") return;
    with_place(scalar.at, [&] {
      check_quotes(scalar, field, path);
      set_field(path, words(scalar, field), field, message);
    });
  }

  // Text and enums are in quotes, true and false are not, and numbers may be.
  void check_quotes(const Scalar& scalar,
                    const FieldDescriptor& field,
                    const std::string& path) const {
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      const bool is_number = !scalar.text.empty() && std::isdigit(scalar.text.front()) != 0 &&
                             find_enum_value(*field.enum_type(), scalar.text) != nullptr;
      const bool is_name =
          scalar.quoted && field.enum_type()->FindValueByName(scalar.text) != nullptr;
      if (!is_number && !is_name)
        throw ConfigError("{}: {}{}",
                          path,
                          unknown_enum_message(field, scalar.text),
                          scalar.quoted ? "" : ", in double quotes");
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      if (!scalar.quoted) refuse_value(path, in_quotes(scalar.text), "text in double quotes");
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
      if (scalar.quoted) refuse_value(path, in_quotes(scalar.text), "true or false, not in quotes");
    }
  }

  static std::string words(const Scalar& scalar, const FieldDescriptor& field) {
    return is_integer(field) ? in_digits(scalar.text) : scalar.text;
  }

  template <typename Work>
  void with_place(size_t at, const Work& work) const {
    try {
      work();
    } catch (const ConfigError& error) {
      fail(at, error.what());
    }
  }

  std::string_view text_;
  const std::string& origin_;
  size_t at_ = 0;
};

}  // namespace

void read_json_config(std::string_view text, const std::string& origin, Message* config) {
  Reader(text, origin).read(config);
}

}  // namespace lockstep::config
