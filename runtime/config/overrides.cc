#include "runtime/config/overrides.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/config/names.h"

namespace lockstep {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// All of `text` as a number. No value if it has anything else or is out of range.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

std::optional<bool> parse_bool(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

bool equal_in_any_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

const EnumValueDescriptor* parse_enum(const FieldDescriptor& field, std::string_view text) {
  for (int i = 0; i < field.enum_type()->value_count(); ++i) {
    const EnumValueDescriptor* value = field.enum_type()->value(i);
    if (equal_in_any_case(value->name(), text)) return value;
  }
  return nullptr;
}

[[noreturn]] void refuse_type(const std::string& path,
                              std::string_view text,
                              const FieldDescriptor& field) {
  refuse_value(path, in_quotes(text), describe_type(field));
}

template <typename Number>
Number number_or_refuse(const std::string& path,
                        std::string_view text,
                        const FieldDescriptor& field) {
  const std::optional<Number> value = parse_number<Number>(text);
  if (!value) refuse_type(path, text, field);
  return *value;
}

void set_scalar(const std::string& path,
                std::string_view text,
                const FieldDescriptor& field,
                Message* message) {
  const Reflection& to = *message->GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      to.SetInt64(message, &field, number_or_refuse<int64_t>(path, text, field));
      return;
    case FieldDescriptor::CPPTYPE_UINT64:
      to.SetUInt64(message, &field, number_or_refuse<uint64_t>(path, text, field));
      return;
    case FieldDescriptor::CPPTYPE_FLOAT:
      to.SetFloat(message, &field, number_or_refuse<float>(path, text, field));
      return;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      to.SetDouble(message, &field, number_or_refuse<double>(path, text, field));
      return;
    case FieldDescriptor::CPPTYPE_BOOL: {
      const std::optional<bool> value = parse_bool(text);
      if (!value) refuse_type(path, text, field);
      to.SetBool(message, &field, *value);
      return;
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const EnumValueDescriptor* value = parse_enum(field, text);
      if (value == nullptr) throw ConfigError("{}: {}", path, unknown_enum_message(field, text));
      to.SetEnum(message, &field, value);
      return;
    }
    case FieldDescriptor::CPPTYPE_STRING: to.SetString(message, &field, std::string(text)); return;
    default: LOCKSTEP_CHECK(false, "field {} has an unexpected type", field.full_name());
  }
}

void set_repeated(const std::string& path,
                  std::string_view text,
                  const FieldDescriptor& field,
                  Message* message) {
  const Reflection& to = *message->GetReflection();
  to.ClearField(message, &field);
  if (text.empty()) return;
  for (const std::string_view element : split(text, ',')) {
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      to.AddString(message, &field, std::string(element));
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
      to.AddFloat(message, &field, number_or_refuse<float>(path, element, field));
    } else {
      LOCKSTEP_CHECK(field.cpp_type() == FieldDescriptor::CPPTYPE_INT64);
      to.AddInt64(message, &field, number_or_refuse<int64_t>(path, element, field));
    }
  }
}

void set_section(const std::string& path,
                 std::string_view text,
                 const FieldDescriptor& field,
                 Message* message) {
  if (!text.empty() && text != "{}") {
    throw ConfigError("{}: value is {}; allowed: {{}} (its defaults), or set a field of it: {}",
                      path,
                      in_quotes(text),
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
                 fmt::format("sections, {{...}} or [{{...}}, {{...}}], of {}",
                             field_names(*field.message_type())));
  message->GetReflection()->ClearField(message, &field);
  message->MergeFrom(*given);
}

}  // namespace

void apply_override(const std::string& assignment, Message* config) {
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
      throw ConfigError(
          "--set {}: {}", in_quotes(path), unknown_field_message(*message->GetDescriptor(), name));
    }
  }
  if (field->message_type() != nullptr && field->is_repeated())
    return set_sections(path, value, *field, message);
  if (field->message_type() != nullptr) return set_section(path, value, *field, message);
  if (field->is_repeated()) return set_repeated(path, value, *field, message);
  set_scalar(path, value, *field, message);
}

}  // namespace lockstep
