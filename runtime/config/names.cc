#include "runtime/config/names.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/config/schema.h"

namespace lockstep::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;

void append_fields(const Descriptor& type,
                   const std::string& prefix,
                   std::vector<SchemaField>* fields) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    fields->push_back({prefix + field->name(), field});
    if (field->message_type() != nullptr) {
      append_fields(*field->message_type(), fields->back().path + ".", fields);
    }
  }
}

std::vector<std::string> names_of_fields(const Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return names;
}

std::vector<std::string> names_of_values(const EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) names.push_back(type.value(i)->name());
  return names;
}

}  // namespace

const std::vector<SchemaField>& schema_fields(const Descriptor& root) {
  const auto below = [](const Descriptor& type) {
    std::vector<SchemaField> all;
    append_fields(type, "", &all);
    return all;
  };
  static const std::vector<SchemaField> of_config = below(config_type());
  static const std::vector<SchemaField> of_hardware = below(hardware_type());
  return &root == &config_type() ? of_config : of_hardware;
}

const FieldDescriptor* find_field(std::string_view path) {
  for (const SchemaField& entry : schema_fields()) {
    if (entry.path == path) return entry.field;
  }
  return nullptr;
}

std::vector<SchemaField> schema_fields_named(std::string_view name, const Descriptor& root) {
  std::vector<SchemaField> found;
  for (const SchemaField& entry : schema_fields(root)) {
    if (entry.field->name() == name) found.push_back(entry);
  }
  return found;
}

std::string section_name(const Descriptor& type) {
  if (&type == &config_type()) return "the config";
  if (&type == &hardware_type()) return "a hardware file";
  for (const SchemaField& entry : schema_fields(root_of(type))) {
    if (entry.field->message_type() == &type) return entry.path;
  }
  LOCKSTEP_CHECK(false, "{} is not a section", type.full_name());
  return "";
}

std::string field_names(const Descriptor& type) { return joined(names_of_fields(type)); }

std::string describe_type(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64: return "a whole number (int64)";
    case FieldDescriptor::CPPTYPE_UINT64: return "a whole number >= 0 (uint64)";
    case FieldDescriptor::CPPTYPE_FLOAT: return "a number (float)";
    case FieldDescriptor::CPPTYPE_DOUBLE: return "a number (double)";
    case FieldDescriptor::CPPTYPE_BOOL: return "true or false (bool)";
    case FieldDescriptor::CPPTYPE_STRING: return "text in quotes (string)";
    case FieldDescriptor::CPPTYPE_ENUM:
      return fmt::format("one of {}", joined(names_of_values(*field.enum_type())));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return fmt::format("a section {{ ... }} of {}", field_names(*field.message_type()));
    default: break;
  }
  LOCKSTEP_CHECK(false, "field {} has a type that configs do not use", field.full_name());
  return "";
}

size_t edit_distance(std::string_view a, std::string_view b) {
  const auto same = [&](size_t i, size_t j) {
    return std::tolower(static_cast<unsigned char>(a[i])) ==
           std::tolower(static_cast<unsigned char>(b[j]));
  };
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (same(i - 1, j - 1) ? 0 : 1);
      row[j] = std::min({replaced, row[j - 1] + 1, last[j] + 1});
      if (i > 1 && j > 1 && same(i - 1, j - 2) && same(i - 2, j - 1))
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

std::string suggestion(std::string_view name, const std::vector<std::string>& candidates) {
  // A third of the letters may differ. That is enough for two swapped letters in a word of four or
  // more.
  size_t best_distance = (name.size() + 2) / 3 + 1;
  const std::string* best = nullptr;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance && distance < candidate.size()) {
      best_distance = distance;
      best = &candidate;
    }
  }
  // The name may also be the beginning of a longer one: "warmup" for "warmup_steps".
  for (const std::string& candidate : candidates) {
    if (best == nullptr && name.size() >= 3 && candidate.starts_with(name)) best = &candidate;
  }
  return best == nullptr ? "" : fmt::format(" did you mean '{}'?", *best);
}

namespace {

bool equal_names(std::string_view a, std::string_view b) { return edit_distance(a, b) == 0; }

// " did you mean 'train.lanes'? ..." if other programs use this name for one of our fields. Fields
// of the same section take precedence. Empty if there is no such field.
std::string other_name_hint(const Descriptor& type, std::string_view name) {
  constexpr size_t kMaxPlaces = 4;
  std::vector<std::string> here, elsewhere;
  std::string but;
  for (const SchemaField& entry : schema_fields(root_of(type))) {
    for (const proto::OtherName& other : note_of(*entry.field).also()) {
      if (!equal_names(other.name(), name)) continue;
      const bool inside = entry.field->containing_type() == &type;
      (inside ? here : elsewhere).push_back(inside ? entry.field->name() : entry.path);
      if (!other.but().empty() && (inside || here.empty())) but = " " + other.but();
    }
  }
  if (here.empty()) here = elsewhere;
  if (here.empty() || here.size() > kMaxPlaces) return "";
  return fmt::format(" did you mean '{}'?{}", joined(here, "' or '"), but);
}

std::string other_value_hint(const EnumDescriptor& type, std::string_view name) {
  for (int i = 0; i < type.value_count(); ++i) {
    const auto& options = type.value(i)->options();
    for (int k = 0; k < options.ExtensionSize(proto::also_called); ++k) {
      if (equal_names(options.GetExtension(proto::also_called, k), name))
        return fmt::format(" did you mean '{}'?", type.value(i)->name());
    }
  }
  return "";
}

}  // namespace

std::string unknown_field_message(const Descriptor& type, std::string_view name, bool in_text) {
  // A name that exists in another section is probably misplaced, not misspelt.
  constexpr size_t kMaxPlaces = 3;
  std::vector<std::string> elsewhere;
  const Descriptor& root = root_of(type);
  for (const SchemaField& entry : schema_fields_named(name, root)) elsewhere.push_back(entry.path);
  const std::vector<std::string> names = names_of_fields(type);
  // "{" without "}": the section of the whole config comes to stand in another one.
  if (in_text && find_field(name) != nullptr && &root == &config_type() && &type != &root)
    return fmt::format(
        "unknown field {} in {}; {} is a section of its own, before "
        "which a '}}' may be missing; allowed: {}",
        in_quotes(name),
        section_name(type),
        in_quotes(name),
        joined(names));
  std::string hint = other_name_hint(type, name);
  if (hint.empty())
    hint = elsewhere.empty() || elsewhere.size() > kMaxPlaces
               ? suggestion(name, names)
               : fmt::format(" did you mean '{}'?", joined(elsewhere, "' or '"));
  return fmt::format("unknown field {} in {};{} allowed: {}",
                     in_quotes(name),
                     section_name(type),
                     hint,
                     joined(names));
}

std::string unknown_enum_message(const FieldDescriptor& field, std::string_view value) {
  std::string hint = other_value_hint(*field.enum_type(), value);
  if (hint.empty()) hint = suggestion(value, names_of_values(*field.enum_type()));
  return fmt::format("value is {};{} allowed: {}", in_quotes(value), hint, describe_type(field));
}

}  // namespace lockstep::config
