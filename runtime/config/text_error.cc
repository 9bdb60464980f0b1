#include "runtime/config/text_parts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <vector>

#include "runtime/config/names.h"
#include "runtime/config/schema.h"

namespace lockstep::config {
namespace {

using google::protobuf::Descriptor;

// The strings between double quotes in a message of the library.
std::vector<std::string> quoted_parts(std::string_view message) {
  std::vector<std::string> parts;
  size_t begin = message.find('"');
  while (begin != std::string_view::npos) {
    const size_t end = message.find('"', begin + 1);
    if (end == std::string_view::npos) break;
    parts.emplace_back(message.substr(begin + 1, end - begin - 1));
    begin = message.find('"', end + 1);
  }
  return parts;
}

size_t offset_of(std::string_view text, int line, int column) {
  size_t offset = 0;
  for (; line > 0; --line) {
    const size_t end = text.find('\n', offset);
    if (end == std::string_view::npos) return text.size();
    offset = end + 1;
  }
  for (int at = 0; at < column && offset < text.size() && text[offset] != '\n'; ++offset) {
    at = text[offset] == '\t' ? (at / 8 + 1) * 8 : at + 1;
  }
  return offset;
}

// An error that the library reports only after it has read past the offending name or value,
// perhaps into the next line. `part`: the index of the quoted part of the message that has the name
// or value.
struct LateError {
  std::string_view beginning;
  size_t part;
};
constexpr LateError kLateErrors[] = {
    {"Message type ", 1},
    {"Unknown enumeration value ", 0},
    {"Invalid value for boolean field ", 1},
    {"Non-repeated field ", 0},
    {"Field ", 0},
};

// The offset of the offending name or value.
size_t culprit_offset(std::string_view text,
                      size_t offset,
                      std::string_view message,
                      const std::vector<std::string>& parts) {
  for (const LateError& late : kLateErrors) {
    if (!message.starts_with(late.beginning) || parts.size() <= late.part) continue;
    const size_t found = text.substr(0, offset).rfind(parts[late.part]);
    if (found != std::string_view::npos) return found;
  }
  return offset;
}

// The field whose value follows `before` on the same line ("train { steps: " -> "steps"); "" if
// there is none.
std::string field_before(std::string_view before) {
  const size_t colon = before.rfind(':');
  if (colon == std::string_view::npos) return "";
  const auto in_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  size_t end = colon;
  while (end > 0 && (before[end - 1] == ' ' || before[end - 1] == '\t')) --end;
  size_t begin = end;
  while (begin > 0 && in_name(before[begin - 1])) --begin;
  return std::string(before.substr(begin, end - begin));
}

// The path of the sections that are open at the end of a text, with a dot at its end:
// "model.onnx.".
std::string open_sections(std::string_view text) {
  std::vector<std::string> open;
  std::string name;  // the last one
  char quote = 0;
  bool comment = false, was_in_name = false;
  for (const char c : text) {
    if (comment || quote != 0) {
      if (c == (comment ? '\n' : quote)) comment = false, quote = 0;
    } else if (c == '#') {
      comment = true;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '{' || c == '<') {
      open.push_back(name);
    } else if ((c == '}' || c == '>') && !open.empty()) {
      open.pop_back();
    }
    const bool in_name = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    if (in_name && !was_in_name) name.clear();
    if (in_name) name += c;
    was_in_name = in_name;
  }
  std::string path;
  for (const std::string& section : open) path += section + ".";
  return path;
}

// The field of this name in the section that is open at the end of `before`; if the section has
// none, all fields of the name.
std::vector<SchemaField> fields_named(const std::string& name,
                                      std::string_view before,
                                      const Descriptor& root) {
  std::vector<SchemaField> fields = schema_fields_named(name, root);
  const std::string path = open_sections(before) + name;
  for (const SchemaField& field : fields)
    if (field.path == path) return {field};
  return fields;
}

// The path of the field if it is unique; otherwise its name.
std::string name_of(const std::vector<SchemaField>& fields) {
  return fields.size() == 1 ? fields[0].path : fields[0].field->name();
}

// What the library found in `message`, "Expected integer, got: abc", in quotes; empty: another
// message.
std::string found_in(const std::string& message) {
  constexpr std::string_view kGot = ", got: ";
  const size_t got = message.find(kGot);
  if (!message.starts_with("Expected ") || got == std::string::npos) return "";
  const std::string found = message.substr(got + kGot.size());
  return found.starts_with('"') ? found : in_quotes(found);
}

// "train.steps: value is \"abc\"; allowed: a whole number": the message for an error
// in the type of a value, if its field is found on its line. `line`: its part of `before`.
std::optional<std::string> explain_type(const Descriptor& root,
                                        const std::string& message,
                                        std::string_view before,
                                        std::string_view line) {
  const bool about_type = message.starts_with("Expected ") || message.starts_with("Integer ") ||
                          message.starts_with("Invalid value ");
  if (!about_type) return std::nullopt;
  const std::vector<SchemaField> fields = fields_named(field_before(line), before, root);
  if (fields.empty()) return std::nullopt;
  const std::string allowed = describe_type(*fields[0].field);
  const bool one_type = std::ranges::all_of(
      fields, [&](const SchemaField& other) { return describe_type(*other.field) == allowed; });
  if (!one_type) return std::nullopt;
  const std::string found = found_in(message);
  return fmt::format("{}: {}; allowed: {}",
                     name_of(fields),
                     found.empty() ? message : "value is " + found,
                     allowed);
}

// The message for an unknown field or enum value, with the names in the schema.
std::optional<std::string> explain_name(const Descriptor& root,
                                        std::string_view message,
                                        std::string_view before,
                                        const std::vector<std::string>& parts) {
  if (parts.size() != 2) return std::nullopt;
  if (message.starts_with("Message type ")) {
    const auto* type = root.file()->pool()->FindMessageTypeByName(parts[0]);
    if (type != nullptr) return unknown_field_message(*type, parts[1]);
  }
  if (message.starts_with("Unknown enumeration value ")) {
    const std::vector<SchemaField> fields = fields_named(parts[1], before, root);
    if (!fields.empty()) {
      return fmt::format(
          "{}: {}", name_of(fields), unknown_enum_message(*fields[0].field, parts[0]));
    }
  }
  return std::nullopt;
}

// What is wrong with a line that no field begins, in plain words; otherwise the library's message.
std::string explain_line(std::string_view line, const std::string& message) {
  for (const std::string_view mark : {"<<<<<<<", "=======", ">>>>>>>"})
    if (line.starts_with(mark))
      return "is a mark of a merge conflict in Git; keep one of the two versions";
  if (line.starts_with("//") || line.starts_with("/*"))
    return "a comment begins with #; in JSON there are none";
  if (line.starts_with('{'))
    return "nothing may stand before the { of a config in JSON, not even a comment";
  if (message.starts_with("Invalid control character")) return "is a control character; remove it";
  const std::string found = found_in(message);
  if (found.empty()) return message;
  constexpr std::string_view kExpected = "Expected ";
  std::string_view wanted =
      std::string_view(message).substr(kExpected.size(), message.find(',') - kExpected.size());
  if (wanted == "identifier") wanted = "the name of a field";
  if (wanted == "string") wanted = "text in quotes";
  return fmt::format("expected {}, found {}", wanted, found);
}

}  // namespace

std::string describe_text_error(std::string_view text,
                                int line,
                                int column,
                                const std::string& library_message,
                                const Descriptor& root) {
  std::string message = library_message;
  if (!message.empty() && message.back() == '.') message.pop_back();
  const std::vector<std::string> parts = quoted_parts(message);
  const size_t offset = culprit_offset(text, offset_of(text, line, column), message, parts);
  const size_t line_begin = text.substr(0, offset).rfind('\n') + 1;  // npos + 1 is 0
  const auto line_number = std::count(text.begin(), text.begin() + offset, '\n') + 1;

  const std::string_view before = text.substr(0, offset);
  std::optional<std::string> explained = explain_name(root, message, before, parts);
  if (!explained) explained = explain_type(root, message, before, before.substr(line_begin));
  if (!explained) {
    std::string_view error_line = text.substr(line_begin);
    error_line = error_line.substr(0, error_line.find('\n'));
    error_line.remove_prefix(std::min(error_line.find_first_not_of(" \t"), error_line.size()));
    explained = fmt::format("{} (in {})", explain_line(error_line, message), in_quotes(error_line));
  }
  return fmt::format("{}:{}: {}", line_number, offset - line_begin + 1, *explained);
}

}  // namespace lockstep::config
