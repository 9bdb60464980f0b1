#include "runtime/config/field_search.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cctype>
#include <memory>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/config/flags_of_others.h"
#include "runtime/config/names.h"
#include "runtime/config/overrides.h"
#include "runtime/config/schema.h"

namespace lockstep::config {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kMaxMatches = 4, kMaxExcluded = 8;

// As much of a config as can be read.
std::unique_ptr<Message> read_leniently(const std::string& text) {
  struct Quiet final : google::protobuf::io::ErrorCollector {
    void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
  } quiet;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&quiet);
  std::unique_ptr<Message> message = new_message();
  if (!parser.ParseFromString(text, message.get())) message->Clear();
  return message;
}

// Whether the path leads through a list of sections, in which no field can be set by itself.
bool is_in_list(const std::string& path) {
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1))
    if (find_field(path.substr(0, dot))->is_repeated()) return true;
  return false;
}

// Whether the config has a section that excludes the field at `path`.
bool is_excluded(const Message& config, const std::string& path) {
  const Message* section = &config;
  for (size_t begin = 0; begin < path.size();) {
    const size_t dot = std::min(path.find('.', begin), path.size());
    const FieldDescriptor* field =
        section->GetDescriptor()->FindFieldByName(path.substr(begin, dot - begin));
    const auto& from = *section->GetReflection();
    if (field->message_type() == nullptr || field->is_repeated()) return false;
    if (const auto* choice = field->containing_oneof();
        choice != nullptr && from.HasOneof(*section, choice) && !from.HasField(*section, field))
      return true;
    section = &from.GetMessage(*section, field);
    begin = dot + 1;
  }
  return false;
}

FieldMatch match_of(const SchemaField& entry, std::string value = "", std::string but = "") {
  FieldMatch match{entry.path, std::move(value), std::move(but), false, FieldMatch::Kind::kNumber};
  switch (entry.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE: match.value = "{}"; break;
    case FieldDescriptor::CPPTYPE_BOOL: match.kind = FieldMatch::Kind::kSwitch; break;
    case FieldDescriptor::CPPTYPE_STRING: match.kind = FieldMatch::Kind::kText; break;
    case FieldDescriptor::CPPTYPE_ENUM: match.kind = FieldMatch::Kind::kName; break;
    default: break;
  }
  return match;
}

// The value of the field's enum that has the name, here or in other programs.
const EnumValueDescriptor* value_named(const FieldDescriptor& field, const std::string& name) {
  if (field.enum_type() == nullptr) return nullptr;
  for (int i = 0; i < field.enum_type()->value_count(); ++i) {
    const EnumValueDescriptor* value = field.enum_type()->value(i);
    if (plain_flag(value->name()) == name) return value;
    const auto& options = value->options();
    for (int k = 0; k < options.ExtensionSize(proto::also_called); ++k)
      if (plain_flag(options.GetExtension(proto::also_called, k)) == name) return value;
  }
  return nullptr;
}

std::string value_in(const FieldDescriptor& field, const std::string& name) {
  const EnumValueDescriptor* value = value_named(field, name);
  return value == nullptr ? "" : value->name();
}

// A section can be named if it is one of several: --optimizer adamw, or --adamw.
void add_section(const SchemaField& entry,
                 const std::string& name,
                 const std::string& value,
                 std::vector<FieldMatch>& matches) {
  if (entry.field->is_repeated()) return;
  if (entry.field->containing_oneof() != nullptr && entry.field->name() == name)
    matches.push_back(match_of(entry));
  if (entry.field->name() != name) return;
  const auto& type = *entry.field->message_type();
  for (int i = 0; i < type.field_count(); ++i) {  // adamw_torch is adamw
    const FieldDescriptor* member = type.field(i);
    const bool chosen = value == member->name() || value.starts_with(member->name() + "_");
    if (member->containing_oneof() != nullptr && chosen)
      matches.push_back(match_of({entry.path + "." + member->name(), member}));
  }
}

// Fields for which `names` is true of the path, the name, or a name in other programs, in this
// order of preference; then fields with a value of that name.
std::vector<FieldMatch> matches_of(const std::string& name, const std::string& value) {
  std::vector<FieldMatch> by_path, by_name, by_other_name, by_value;
  for (const SchemaField& entry : schema_fields()) {
    if (is_in_list(entry.path)) continue;
    if (entry.field->message_type() != nullptr) {
      add_section(entry, name, value, by_name);
      for (const proto::OtherName& other : note_of(*entry.field).also())
        if (plain_flag(other.name()) == name)
          add_section(entry, entry.field->name(), value, by_other_name);
      continue;
    }
    if (plain_flag(entry.path) == name) by_path.push_back(match_of(entry));
    if (entry.field->name() == name) by_name.push_back(match_of(entry));
    for (const proto::OtherName& other : note_of(*entry.field).also())
      if (plain_flag(other.name()) == name)
        by_other_name.push_back(match_of(entry, value_in(*entry.field, name), other.but()));
    if (const EnumValueDescriptor* named = value_named(*entry.field, name))
      by_value.push_back(match_of(entry, named->name()));
  }
  for (const auto* matches : {&by_path, &by_name, &by_other_name, &by_value})
    if (!matches->empty()) return *matches;
  return {};
}

// Whether the field can have the value; if `value` is not empty.
bool takes(const std::string& path, const std::string& value) {
  if (value.empty()) return true;
  const std::unique_ptr<Message> message = new_message();
  try {
    apply_override(path + "=" + value, message.get());
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

// What a number or a name must be, if `value` is not one; a switch is set by the flag itself. A
// name may be one of another program: bfloat16.
void adapt_value(FieldMatch& match, const std::string& value) {
  const FieldDescriptor& field = *find_field(match.path);
  if (!match.value.empty() || match.kind == FieldMatch::Kind::kSwitch) return;
  if (field.enum_type() != nullptr) {
    match.value = value_in(field, plain_flag(value));
    for (const auto& [name, others] : kTypesOfOthers)
      if (match.value.empty() && has_word(others, plain_flag(value)))
        match.value = value_in(field, name);
  }
  if (!match.value.empty() || (field.enum_type() == nullptr && takes(match.path, value))) return;
  match.value = "VALUE";
  if (match.but.empty() && field.enum_type() != nullptr)
    match.but = "VALUE is " + describe_type(field) + ".";
}

// Only those that the config does not exclude, if there are any. A section may replace another.
std::vector<FieldMatch> narrowed(std::vector<FieldMatch> matches, const std::string& config) {
  const std::unique_ptr<Message> given = read_leniently(config);
  std::vector<FieldMatch> fitting;
  for (FieldMatch& match : matches) {
    match.excluded =
        find_field(match.path)->message_type() == nullptr && is_excluded(*given, match.path);
    if (!match.excluded) fitting.push_back(match);
  }
  const size_t most = fitting.empty() ? kMaxExcluded : kMaxMatches;
  if (!fitting.empty()) matches = std::move(fitting);
  if (matches.size() > most) matches.clear();
  return matches;
}

}  // namespace

std::string plain_flag(std::string_view flag) {
  flag.remove_prefix(std::min(flag.find_first_not_of('-'), flag.size()));
  std::string plain;
  for (const char c : flag)
    plain +=
        c == '-' || c == '.' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return plain;
}

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  size_t least = std::max<size_t>(name.size() / 6, 1) + 1;
  const std::string* best = nullptr;
  for (const std::string& candidate : candidates) {
    // The first letter is hardly ever wrong. A swap changes it, too.
    if (name.size() < 3 || candidate.size() < 3 || candidate.substr(0, 2).find(name[0]) > 1)
      continue;
    const size_t distance = edit_distance(name, candidate);
    if (distance < least) best = &candidate, least = distance;
  }
  if (best != nullptr || name.size() < 4) return best == nullptr ? "" : *best;
  for (const std::string& candidate : candidates) {  // the beginning of one longer name
    if (!candidate.starts_with(name)) continue;
    if (best != nullptr && *best != candidate) return "";
    best = &candidate;
  }
  return best == nullptr ? "" : *best;
}

bool has_word(const std::string& list, const std::string& word) {
  return std::ranges::count(words_of(list), word) > 0;
}

std::vector<FieldMatch> fields_named_by(std::string_view flag,
                                        std::string_view value,
                                        const std::string& config) {
  const std::string name = plain_flag(flag), given = plain_flag(value);
  std::vector<FieldMatch> matches = narrowed(matches_of(name, given), config);
  for (const FlagsOfOthers& others : kFlagsOfOthers) {
    if (!matches.empty() || !has_word(others.flags, name)) continue;
    matches = narrowed(matches_of(others.name, given), config);
    for (FieldMatch& match : matches) {
      if (*others.value != '\0') match.value = others.value;
      if (*others.but != '\0') match.but = others.but;
    }
  }
  if (matches.empty() && name.starts_with("no_")) {
    matches = narrowed(matches_of(name.substr(3), ""), config);
    std::erase_if(matches,
                  [](const FieldMatch& match) { return match.kind != FieldMatch::Kind::kSwitch; });
    for (FieldMatch& match : matches) match.value = "false";
  }
  for (FieldMatch& match : matches) adapt_value(match, std::string(value));
  return matches;
}

std::vector<FieldMatch> fields_named_nearly(std::string_view flag,
                                            std::string_view value,
                                            const std::string& config) {
  const std::unique_ptr<Message> given = read_leniently(config);
  std::vector<std::string> names;
  for (const SchemaField& entry : schema_fields()) {
    if (entry.field->message_type() != nullptr || is_in_list(entry.path)) continue;
    if (is_excluded(*given, entry.path) || !takes(entry.path, std::string(value))) continue;
    names.push_back(entry.field->name());
    names.push_back(plain_flag(entry.path));
    for (const proto::OtherName& other : note_of(*entry.field).also())
      names.push_back(plain_flag(other.name()));
  }
  const std::string name = nearest(plain_flag(flag), names);
  return name.empty() ? std::vector<FieldMatch>{} : fields_named_by(name, value, config);
}

}  // namespace lockstep::config
