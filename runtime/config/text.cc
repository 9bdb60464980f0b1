#include "runtime/config/text.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <map>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/config/schema.h"
#include "runtime/config/text_parts.h"

namespace lockstep::config {
namespace {

using google::protobuf::Message;
using google::protobuf::TextFormat;

constexpr int kMaxNesting = 100;

// Keeps the first error; later ones are usually consequences of it.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line,
                google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (!message_.empty()) return;
    line_ = line;
    column_ = column;
    message_ = message;
  }
  int line() const { return line_; }
  int column() const { return column_; }
  const std::string& message() const { return message_; }

 private:
  int line_ = 0;
  int column_ = 0;
  std::string message_;
};

// Whether `section`, null if it is not given itself, has a field of that name.
bool gives(const Message* section, const std::string& name) {
  if (section == nullptr) return false;
  const auto* field = section->GetDescriptor()->FindFieldByName(name);
  const auto& reflection = *section->GetReflection();
  return field->is_repeated() ? reflection.FieldSize(*section, field) > 0
                              : reflection.HasField(*section, field);
}

// The section of that name, or for a list the one at `index`; null if it is not given.
const Message* section_below(const Message* section, const std::string& name, int index) {
  if (!gives(section, name)) return nullptr;
  const auto* field = section->GetDescriptor()->FindFieldByName(name);
  const auto& reflection = *section->GetReflection();
  return field->is_repeated() ? &reflection.GetRepeatedMessage(*section, field, index)
                              : &reflection.GetMessage(*section, field);
}

// A config in protobuf text format never begins with a brace, and one in JSON always does.
bool begins_with_brace(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  return begin != std::string_view::npos && text[begin] == '{';
}

void parse_plain(const std::string& text, const std::string& origin, Message* message) {
  FirstError error;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(kMaxNesting);
  if (parser.ParseFromString(text, message)) return;
  throw ConfigError(
      "{}:{}",
      origin,
      describe_text_error(
          text, error.line(), error.column(), error.message(), *message->GetDescriptor()));
}

// The text with plain lines. Throws ConfigError if it is too long or no text.
std::string checked_text(const std::string& text, const std::string& origin) {
  if (text.size() > kMaxConfigBytes) {
    throw ConfigError(
        "{}: size is {} bytes; allowed: at most {}", origin, text.size(), kMaxConfigBytes);
  }
  refuse_binary_config(text, origin);
  return with_plain_lines(text);
}

}  // namespace

std::unique_ptr<Message> parse_text(const std::string& text, const std::string& origin) {
  const std::string plain = checked_text(text, origin);
  std::unique_ptr<Message> message = new_message();
  try {
    if (begins_with_brace(plain)) {
      read_json_config(plain, origin, message.get());
    } else {
      refuse_odd_characters(plain, origin);
      parse_plain(plain, origin, message.get());
    }
  } catch (const ConfigError& error) {
    const std::string other = name_other_format(plain, origin, error.what());
    if (other.empty()) throw;
    throw ConfigError("{}", other);
  }
  return message;
}

std::unique_ptr<Message> parse_hardware_text(const std::string& text, const std::string& origin) {
  const std::string plain = checked_text(text, origin);
  refuse_odd_characters(plain, origin);
  std::unique_ptr<Message> message = new_message(hardware_type());
  parse_plain(plain, origin, message.get());
  return message;
}

std::string print_text(const Message& message) {
  TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  printer.SetUseUtf8StringEscaping(true);
  std::string text;
  LOCKSTEP_CHECK(printer.PrintToString(message, &text));
  return text;
}

std::string print_with_origins(const Message& all, const Message& given) {
  std::istringstream lines(print_text(all));
  std::vector<const Message*> sections{&given};  // the enclosing sections of the line
  // The number of sections with a name so far.
  std::map<std::pair<const Message*, std::string>, int> seen;
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(' ');
    const std::string name = line.substr(begin, line.find_first_of(": ", begin) - begin);
    if (name == "}") {
      sections.pop_back();
    } else if (line.back() == '{') {
      const int index = seen[{sections.back(), name}]++;
      sections.push_back(section_below(sections.back(), name, index));
    } else if (!gives(sections.back(), name)) {
      line += "  # default";
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace lockstep::config
