#include "runtime/config/field_value.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/config/limits.h"
#include "runtime/config/names.h"

namespace lockstep::config {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

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

// "1_000", "1,000", "1e3", "3.0" and "1k" as whole numbers; "0,1" as a fraction.
std::optional<double> number_meant(std::string text, bool whole) {
  std::erase(text, '_');
  if (text.starts_with('+')) text.erase(0, 1);
  const size_t comma = text.find(',');
  if (comma != std::string::npos && comma > 0 && text.find(',', comma + 1) == std::string::npos) {
    const bool thousands = whole && comma <= 3 && text.size() == comma + 4;
    if (thousands)
      text.erase(comma, 1);
    else if (!whole && text.find('.') == std::string::npos)
      text[comma] = '.';
  }
  double factor = 1;
  if (text.size() > 1 && (text.back() == 'k' || text.back() == 'K')) factor = 1e3;
  if (text.size() > 1 && text.back() == 'M') factor = 1e6;
  if (factor > 1) text.pop_back();
  const std::optional<double> number = parse_as<double>(text);
  if (!number || !std::isfinite(*number) || std::abs(*number) > 1e15) return std::nullopt;
  if (whole && *number * factor != std::floor(*number * factor)) return std::nullopt;
  return *number * factor;
}

// " did you mean 1000?" for a value that is written as other programs write it.
std::string value_hint(std::string_view text, const FieldDescriptor& field) {
  const std::string given(text);
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      for (const char* word : {"true", "yes", "y", "on", "1"})
        if (equal_in_any_case(given, word)) return " did you mean true?";
      for (const char* word : {"false", "no", "n", "off", "0"})
        if (equal_in_any_case(given, word)) return " did you mean false?";
      return "";
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT64:
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const bool whole = field.cpp_type() == FieldDescriptor::CPPTYPE_INT64 ||
                         field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64;
      const std::optional<double> meant = number_meant(given, whole);
      const bool negative = meant && *meant < 0;
      if (!meant || (negative && field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64)) return "";
      return whole ? fmt::format(" did you mean {:.0f}?", *meant)
                   : fmt::format(" did you mean {:g}?", *meant);
    }
    default: return "";
  }
}

[[noreturn]] void refuse_type(const std::string& path,
                              std::string_view text,
                              const FieldDescriptor& field) {
  const std::string hint = value_hint(text, field);
  if (hint.empty()) refuse_value(path, in_quotes(text), describe_type(field));
  throw ConfigError(
      "{}: value is {};{} allowed: {}", path, in_quotes(text), hint, describe_type(field));
}

template <typename Number>
Number number_or_refuse(const std::string& path,
                        std::string_view text,
                        const FieldDescriptor& field) {
  const std::optional<Number> value = parse_as<Number>(text);
  if (!value) refuse_type(path, text, field);
  return *value;
}

}  // namespace

const EnumValueDescriptor* find_enum_value(const google::protobuf::EnumDescriptor& type,
                                           std::string_view text) {
  for (int i = 0; i < type.value_count(); ++i) {
    const EnumValueDescriptor* value = type.value(i);
    const std::string number = std::to_string(value->number());
    if (equal_in_any_case(value->name(), text)) return value;
    if (text == number && value->name().ends_with("_" + number)) return value;
  }
  return nullptr;
}

void set_field(const std::string& path,
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
      const EnumValueDescriptor* value = find_enum_value(*field.enum_type(), text);
      if (value == nullptr) throw ConfigError("{}: {}", path, unknown_enum_message(field, text));
      to.SetEnum(message, &field, value);
      return;
    }
    case FieldDescriptor::CPPTYPE_STRING: to.SetString(message, &field, std::string(text)); return;
    default: LOCKSTEP_CHECK(false, "field {} has an unexpected type", field.full_name());
  }
}

void add_element(const std::string& path,
                 std::string_view text,
                 const FieldDescriptor& field,
                 Message* message) {
  const Reflection& to = *message->GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    to.AddString(message, &field, std::string(text));
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
    to.AddFloat(message, &field, number_or_refuse<float>(path, text, field));
  } else {
    LOCKSTEP_CHECK(field.cpp_type() == FieldDescriptor::CPPTYPE_INT64);
    to.AddInt64(message, &field, number_or_refuse<int64_t>(path, text, field));
  }
}

}  // namespace lockstep::config
