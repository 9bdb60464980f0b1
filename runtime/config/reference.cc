#include "runtime/config/reference.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/config/field_search.h"
#include "runtime/config/limits.h"
#include "runtime/config/names.h"
#include "runtime/config/schema.h"

namespace lockstep::config {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;

std::string type_of(const FieldDescriptor& field) {
  const char* list = field.is_repeated() ? "list of " : "";
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL: return "true or false";
    case FieldDescriptor::CPPTYPE_ENUM: return "name";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return field.is_repeated() ? "section, any number of times" : "section";
    case FieldDescriptor::CPPTYPE_STRING: return fmt::format("{}text", list);
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT64:
      return fmt::format("{}whole number{}", list, *list ? "s" : "");
    default: return fmt::format("{}number{}", list, *list ? "s" : "");
  }
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

std::string default_of(const FieldDescriptor& field) {
  if (field.is_repeated() && field.message_type() == nullptr) {
    std::vector<std::string> elements;
    for (const std::string& element : note_of(field).elements()) {
      const bool text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
      elements.push_back(text ? quoted(element) : element);
    }
    return "[" + joined(elements) + "]";
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL: return field.default_value_bool() ? "true" : "false";
    case FieldDescriptor::CPPTYPE_INT64: return std::to_string(field.default_value_int64());
    case FieldDescriptor::CPPTYPE_UINT64: return std::to_string(field.default_value_uint64());
    case FieldDescriptor::CPPTYPE_FLOAT: return fmt::format("{}", field.default_value_float());
    case FieldDescriptor::CPPTYPE_DOUBLE: return fmt::format("{}", field.default_value_double());
    case FieldDescriptor::CPPTYPE_ENUM: return field.default_value_enum()->name();
    case FieldDescriptor::CPPTYPE_STRING: return quoted(field.default_value_string());
    default: return "";
  }
}

std::string limit_of(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64: return describe(integer_limit(field));
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_DOUBLE: return describe(real_limit(field));
    default: return "";
  }
}

// The field's own rule, or that of the nearest enclosing section that has one.
std::string on_change_of(const SchemaField& entry) {
  std::string path = entry.path;
  proto::Change change = proto::DECIDES;
  while (true) {
    const proto::FieldNote& note = note_of(*find_field(path));
    if (note.has_change()) {
      change = note.change();
      break;
    }
    const size_t dot = path.rfind('.');
    if (dot == std::string::npos) break;
    path.resize(dot);
  }
  switch (change) {
    case proto::FREE: return "another value changes no bit";
    case proto::LOGGED: return "another value is reported in the log, and the run resumes with it";
    default: return "another value is rejected, unless --allow-change names the field";
  }
}

FieldReference reference_of(const SchemaField& entry) {
  const FieldDescriptor& field = *entry.field;
  const proto::FieldNote& note = note_of(field);
  FieldReference reference;
  reference.path = entry.path;
  reference.name = field.name();
  reference.is_section = field.message_type() != nullptr;
  reference.is_choice = field.containing_oneof() != nullptr;
  reference.type = type_of(field);
  reference.unit = note.unit();
  reference.limit = limit_of(field);
  reference.required = note.required();
  reference.about = note.about();
  if (reference.is_section && field.is_repeated())
    reference.about += " The section may occur any number of times.";
  if (!reference.is_section) reference.on_change = on_change_of(entry);
  const size_t dot = entry.path.rfind('.');
  const std::string section = dot == std::string::npos ? "" : entry.path.substr(0, dot);
  if (note.required().empty()) reference.default_value = default_of(field);
  if (note.has_when()) reference.when = when_words(section, field);
  if (field.enum_type() == nullptr) return reference;
  for (int i = 0; i < field.enum_type()->value_count(); ++i) {
    const EnumValueDescriptor& value = *field.enum_type()->value(i);
    reference.values.push_back({value.name(), value.options().GetExtension(proto::about)});
  }
  return reference;
}

[[noreturn]] void refuse_name(std::string_view name) {
  std::string meant;  // learning_rate, train.lr
  const std::string_view section = name.substr(0, name.rfind('.') + 1);
  std::vector<FieldMatch> matches = fields_named_by(name.substr(section.size()), "", "");
  const auto inside = [&](const FieldMatch& match) {
    return match.path.substr(0, match.path.rfind('.') + 1) == section;
  };
  if (std::ranges::any_of(matches, inside)) std::erase_if(matches, std::not_fn(inside));
  for (const FieldMatch& match : matches)
    meant += (meant.empty() ? " did you mean '" : "' or '") + match.path;
  std::vector<std::string> candidates;
  const bool is_path = name.find('.') != std::string_view::npos;
  for (const FieldReference& reference : field_references()) {
    candidates.push_back(is_path ? reference.path : reference.name);
  }
  throw ConfigError(
      "unknown field or section {};{} allowed: a name or path that `lockstep config` lists",
      in_quotes(name),
      meant.empty() ? suggestion(name, candidates) : meant + "'?");
}

}  // namespace

const std::vector<FieldReference>& field_references() {
  static const std::vector<FieldReference> all = [] {
    std::vector<FieldReference> references;
    for (const SchemaField& entry : schema_fields()) references.push_back(reference_of(entry));
    return references;
  }();
  return all;
}

std::vector<FieldReference> find_references(std::string_view name) {
  if (name.empty()) return field_references();
  std::vector<FieldReference> found;
  for (const FieldReference& reference : field_references()) {
    if (reference.path == name) return {reference};
    if (reference.path.ends_with(fmt::format(".{}", name))) found.push_back(reference);
  }
  if (found.empty()) refuse_name(name);
  return found;
}

std::vector<FieldReference> references_below(const FieldReference& section) {
  std::vector<FieldReference> below;
  const std::string prefix = section.path + ".";
  for (const FieldReference& reference : field_references()) {
    const bool inside = reference.path.starts_with(prefix);
    if (inside && reference.path.find('.', prefix.size()) == std::string::npos)
      below.push_back(reference);
  }
  return below;
}

std::string first_sentence(const std::string& text) {
  const size_t end = text.find(". ");
  return end == std::string::npos ? text : text.substr(0, end + 1);
}

}  // namespace lockstep::config
