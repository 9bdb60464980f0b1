#include "runtime/config/overrides.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <cctype>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/odd_characters.h"
#include "runtime/base/text.h"
#include "runtime/config/field_value.h"
#include "runtime/config/limits.h"
#include "runtime/config/names.h"

namespace lockstep::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// A text without the quotes that a config has around it, which people keep when they copy a field
// from there: "a.csv" is a.csv. So "" is an empty text, also as the element of a list.
std::string_view unquoted(std::string_view text) {
  for (const char quote : {'"', '\''})
    if (text.size() >= 2 && text.front() == quote && text.back() == quote)
      return text.substr(1, text.size() - 2);
  return text;
}

// A list without the brackets that a config may have around it: [0.5, 1] is 0.5, 1.
std::string_view without_brackets(std::string_view text) {
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']')
    return text.substr(1, text.size() - 2);
  return text;
}

void set_repeated(const std::string& path,
                  std::string_view text,
                  const FieldDescriptor& field,
                  Message* message) {
  message->GetReflection()->ClearField(message, &field);
  if (text.empty()) return;
  for (const std::string_view element : split(without_brackets(text), ','))
    add_element(path, unquoted(trimmed(element, " ")), field, message);
}

// " did you mean 'optimizer.adamw={}'?" for optimizer=adamw, " did you mean
// 'schedule.kind=cosine'?" for schedule=cosine: the member of a choice or the name that `text` is.
std::string choice_hint(const std::string& path,
                        const google::protobuf::Descriptor& section,
                        std::string_view text) {
  std::string name(text), upper(text);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const auto* member = section.FindFieldByName(name);
  if (member != nullptr && member->containing_oneof() != nullptr &&
      member->message_type() != nullptr)
    return fmt::format(" did you mean '{}.{}={{}}'?", path, name);
  for (int i = 0; i < section.field_count(); ++i) {
    const FieldDescriptor* field = section.field(i);
    if (field->enum_type() != nullptr && field->enum_type()->FindValueByName(upper) != nullptr)
      return fmt::format(" did you mean '{}.{}={}'?", path, field->name(), text);
  }
  return "";
}

// The same for a field that other programs have and this section lacks: model.type=gpt.
std::string type_hint(std::string_view path,
                      const google::protobuf::Descriptor& section,
                      std::string_view name,
                      std::string_view text) {
  if (name != "type" && name != "name" && name != "kind" && name != "arch" && name != "_target_")
    return "";
  return choice_hint(std::string(path.substr(0, path.rfind('.'))), section, text);
}

void set_section(const std::string& path,
                 std::string_view text,
                 const FieldDescriptor& field,
                 Message* message) {
  if (!text.empty() && text != "{}") {
    const std::string hint = choice_hint(path, *field.message_type(), text);
    throw ConfigError("{}: value is {};{} allowed: {{}} (its defaults), or set a field of it: {}",
                      path,
                      in_quotes(text),
                      hint,
                      field_names(*field.message_type()));
  }
  message->GetReflection()->MutableMessage(message, &field)->Clear();
}

// `text` has sections as a config spells them: "{match: \"bias\"}", or several in brackets. They
// replace the existing ones.
void set_sections(const std::string& path,
                  std::string_view text,
                  const FieldDescriptor& field,
                  Message* message) {
  const std::unique_ptr<Message> given(message->New());
  google::protobuf::TextFormat::Parser parser;
  struct Quiet final : google::protobuf::io::ErrorCollector {
    void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
  } quiet;
  parser.RecordErrorsTo(&quiet);
  const bool sections = text.starts_with('{') || text.starts_with('[');
  if (!text.empty() &&
      !(sections && parser.ParseFromString(fmt::format("{} {}", field.name(), text), given.get())))
    refuse_value(path,
                 in_quotes(text),
                 "sections, {{...}} or [{{...}}, {{...}}], of {}",
                 field_names(*field.message_type()));
  message->GetReflection()->ClearField(message, &field);
  message->MergeFrom(*given);
}

// A text in curly quotes, which a shell does not remove.
void refuse_curly_quotes(const std::string& path, std::string_view text) {
  if (text.empty() || !is_odd_quote(text, 0)) return;
  size_t last = text.size() - 1;
  while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
  if (last > 0 && is_odd_quote(text, last))
    refuse_value(path, in_quotes(text), "text; {}", describe_odd_character(text, 0));
}

void apply(const std::string& assignment, Message* config) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw ConfigError("--set {}: no field and value; allowed: path.to.field=value",
                      in_quotes(assignment));
  }
  const std::string path = assignment.substr(0, equals);
  const std::string_view value = std::string_view(assignment).substr(equals + 1);

  Message* message = config;
  const FieldDescriptor* field = nullptr;
  for (const std::string_view name : split(path, '.')) {
    if (field != nullptr) {  // the element before this one must be a section: enter it
      if (field->message_type() != nullptr && field->is_repeated())
        throw ConfigError("--set {}: {} is a list; allowed: {}={{...}} or {}=[{{...}}, {{...}}]",
                          in_quotes(path),
                          in_quotes(field->name()),
                          section_name(*field->message_type()),
                          section_name(*field->message_type()));
      if (field->message_type() == nullptr) {
        throw ConfigError("--set {}: {} has no fields below it; allowed: {}",
                          in_quotes(path),
                          in_quotes(field->name()),
                          describe_type(*field));
      }
      message = message->GetReflection()->MutableMessage(message, field);
    }
    field = message->GetDescriptor()->FindFieldByName(std::string(name));
    if (field == nullptr) {
      const std::string hint = type_hint(path, *message->GetDescriptor(), name, value);
      if (!hint.empty())
        throw ConfigError("--set {}: {} has no field {};{}",
                          in_quotes(assignment),
                          section_name(*message->GetDescriptor()),
                          in_quotes(name),
                          hint);
      throw ConfigError("--set {}: {}",
                        in_quotes(path),
                        unknown_field_message(*message->GetDescriptor(), name, false));
    }
  }
  if (field->message_type() != nullptr && field->is_repeated())
    return set_sections(path, value, *field, message);
  if (field->message_type() != nullptr) return set_section(path, value, *field, message);
  if (field->is_repeated()) return set_repeated(path, value, *field, message);
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) refuse_curly_quotes(path, value);
  set_field(path, unquoted(value), *field, message);
}

}  // namespace

void apply_override(const std::string& assignment, Message* config) {
  try {
    apply(assignment, config);
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    const size_t odd = find_non_ascii(assignment);
    if (odd == std::string::npos || message.find("U+") != std::string::npos) throw;
    throw ConfigError("{} ({})", message, describe_odd_character(assignment, odd));
  }
}

}  // namespace lockstep::config
