#include "runtime/config/differences.h"

#include <google/protobuf/text_format.h>

#include <algorithm>

#include "runtime/base/text.h"
#include "runtime/config/paths.h"
#include "runtime/config/proto_conversion.h"
#include "runtime/config/schema.h"

namespace lockstep::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

constexpr const char* kNotGiven = "not given";
constexpr const char* kGiven = "given";

std::string text_of(const Message& section, const FieldDescriptor& field) {
  std::string text;
  if (!field.is_repeated()) {
    TextFormat::PrintFieldValueToString(section, &field, -1, &text);
    return text;
  }
  TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::vector<std::string> elements;
  for (int i = 0; i < section.GetReflection()->FieldSize(section, &field); ++i) {
    printer.PrintFieldValueToString(section, &field, i, &text);
    elements.push_back(field.message_type() == nullptr ? text : "{ " + text + "}");
  }
  return "[" + joined(elements) + "]";
}

static_assert(static_cast<int>(ChangeRule::kDecides) == proto::DECIDES &&
              static_cast<int>(ChangeRule::kLogged) == proto::LOGGED &&
              static_cast<int>(ChangeRule::kFree) == proto::FREE);

// The properties of a section apply to its fields, unless a field has its own.
struct Inherited {
  ChangeRule rule = ChangeRule::kDecides;
  bool per_rank = false;

  Inherited below(const FieldDescriptor& field) const {
    const proto::FieldNote& note = note_of(field);
    return {note.has_change() ? static_cast<ChangeRule>(note.change()) : rule,
            note.has_per_rank() ? note.per_rank() : per_rank};
  }
};

void add_values(const Message& section,
                const std::string& prefix,
                const Inherited& inherited,
                std::vector<FieldValue>& values) {
  const auto& type = *section.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (note_of(field).expanded()) continue;
    const Inherited properties = inherited.below(field);
    const std::string path = prefix + field.name();
    if (field.message_type() == nullptr || field.is_repeated()) {
      if (applies(section, field))
        values.push_back({path,
                          text_of(section, field),
                          properties.rule,
                          properties.per_rank,
                          note_of(field).path() != proto::NO_PATH});
      continue;
    }
    if (!section.GetReflection()->HasField(section, &field)) continue;
    const bool choice = field.containing_oneof() != nullptr;
    if (choice) {
      values.push_back({prefix.substr(0, prefix.size() - 1),
                        field.name(),
                        properties.rule,
                        properties.per_rank,
                        false});
    } else if (note_of(field).presence() == proto::IF_GIVEN) {
      values.push_back({path, kGiven, properties.rule, properties.per_rank, false});
    }
    add_values(
        section.GetReflection()->GetMessage(section, &field), path + ".", properties, values);
  }
}

const FieldValue* find(const std::vector<FieldValue>& values, const std::string& path) {
  const auto found = std::ranges::find(values, path, &FieldValue::path);
  return found == values.end() ? nullptr : &*found;
}

// The text of a string's value: "a" without the quotation marks.
std::string unquoted(const std::string& value) {
  return value.size() < 2 || value[0] != '"' ? value : value.substr(1, value.size() - 2);
}

bool lies_in(const std::string& path, const std::string& section) {
  return path.starts_with(section + ".");
}

}  // namespace

std::vector<FieldValue> field_values(const RunConfig& config) {
  std::vector<FieldValue> values;
  add_values(*to_proto(config, Sections::kAll), "", {}, values);
  return values;
}

std::vector<FieldChange> differences(const RunConfig& before, const RunConfig& now) {
  const std::vector<FieldValue> old_values = field_values(before), values = field_values(now);
  std::vector<FieldChange> changes;
  std::vector<std::string> sections;  // sections that only one of them has
  const auto known = [&](const std::string& path) {
    return std::ranges::any_of(sections,
                               [&](const std::string& section) { return lies_in(path, section); });
  };
  const auto add = [&](const FieldValue& value, const std::string& then, const std::string& is) {
    if (then == is || known(value.path)) return;
    if (value.is_path && same_path(unquoted(then), unquoted(is))) return;
    changes.push_back({value.path, then, is, value.rule});
    if (then == kGiven || is == kGiven) sections.push_back(value.path);
    for (const std::string& choice : {then, is}) sections.push_back(value.path + "." + choice);
  };
  for (const FieldValue& value : values) {
    const FieldValue* const old = find(old_values, value.path);
    add(value, old == nullptr ? kNotGiven : old->value, value.value);
  }
  for (const FieldValue& old : old_values) {
    if (find(values, old.path) == nullptr) add(old, old.value, kNotGiven);
  }
  return changes;
}

bool is_named(const std::string& path, const std::vector<std::string>& names) {
  return std::ranges::any_of(
      names, [&](const std::string& name) { return path == name || lies_in(path, name); });
}

}  // namespace lockstep::config
