#include "runtime/config/generator/check_schema.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "runtime/config/schema/options.pb.h"

namespace lockstep::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;

template <typename Element>
void require(bool condition, const Element& element, const char* problem) {
  if (!condition) throw std::runtime_error(element.full_name() + ": " + problem);
}

bool is_number(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_INT64 ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
}

double default_number(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64: return static_cast<double>(field.default_value_int64());
    case FieldDescriptor::CPPTYPE_FLOAT: return field.default_value_float();
    default: return field.default_value_double();
  }
}

void check_type(const FieldDescriptor& field) {
  require(!field.is_required() && !field.is_extension(), field, "must be optional or repeated");
  switch (field.type()) {
    case FieldDescriptor::TYPE_INT64:
    case FieldDescriptor::TYPE_FLOAT:
    case FieldDescriptor::TYPE_STRING:
    case FieldDescriptor::TYPE_MESSAGE: return;
    case FieldDescriptor::TYPE_BOOL:
    case FieldDescriptor::TYPE_UINT64:
    case FieldDescriptor::TYPE_DOUBLE:
    case FieldDescriptor::TYPE_ENUM:
      require(!field.is_repeated(), field, "lists are of int64, float, string or sections");
      return;
    default:
      require(false,
              field,
              "allowed types: bool, int64, uint64, float, double, string, an enum, a message");
  }
}

void check_limit(const FieldDescriptor& field, const proto::FieldNote& note) {
  const bool bounded = note.has_min() || note.has_max() || note.has_above() || note.has_below();
  require(!bounded || is_number(field), field, "only an int64, a float or a double has a limit");
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    require(note.has_min() && note.has_max(), field, "an int64 has min and max");
    require(!note.has_above() && !note.has_below(), field, "above and below are not for an int64");
    require(note.min() == std::floor(note.min()) && note.max() == std::floor(note.max()),
            field,
            "its limits are not whole numbers");
  }
  require(!(note.has_min() && note.has_above()), field, "has both min and above");
  require(!(note.has_max() && note.has_below()), field, "has both max and below");
  require(!(note.has_max() || note.has_below()) || note.has_min() || note.has_above(),
          field,
          "has an upper bound and no lower one");
  if (!is_number(field) || field.is_repeated()) return;
  const double value = default_number(field);
  require(!(note.has_min() && value < note.min()) && !(note.has_max() && value > note.max()) &&
              !(note.has_above() && value <= note.above()) &&
              !(note.has_below() && value >= note.below()),
          field,
          "its default is outside its limit");
}

void check_when(const FieldDescriptor& field, const proto::When& when) {
  require(is_number(field) && !field.is_repeated(), field, "only a number has `when`");
  const FieldDescriptor* decider = field.containing_type()->FindFieldByName(when.field());
  require(decider != nullptr && decider->index() < field.index() && decider->enum_type() != nullptr,
          field,
          "`when` needs an enum that the section declares before it");
  require(!when.value().empty(), field, "`when` names no value");
  for (const std::string& value : when.value())
    require(decider->enum_type()->FindValueByName(value) != nullptr,
            field,
            "`when` names no value of the enum");
  for (const std::string& value : when.required_with())
    require(std::ranges::count(when.value(), value) > 0,
            field,
            "`required_with` names no value of `when`");
}

template <typename Element>
void check_about(const Element& element, const std::string& about) {
  require(about.ends_with('.'), element, "`about` must be whole sentences");
}

void check_field(const FieldDescriptor& field) {
  const proto::FieldNote& note = field.options().GetExtension(proto::field);
  const bool section = field.message_type() != nullptr;
  check_type(field);
  check_about(field, note.about());
  check_limit(field, note);
  require(note.elements_size() == 0 || (field.is_repeated() && !section),
          field,
          "only a list of values has `elements`");
  require(!note.has_required() || field.cpp_type() == FieldDescriptor::CPPTYPE_STRING,
          field,
          "only text can be `required`");
  require(!note.expanded() ||
              (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING && !field.is_repeated()),
          field,
          "only text outside lists can be `expanded`");
  require(!note.has_path() ||
              (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING && !field.is_repeated()),
          field,
          "only text outside lists can be a `path`");
  if (note.has_when()) check_when(field, note.when());
  require(!note.has_presence() ||
              (section && field.containing_oneof() == nullptr && !field.is_repeated()),
          field,
          "only a section outside a oneof and lists has `presence`");
  require(field.containing_oneof() == nullptr || section, field, "a oneof is of sections");
}

void check_enum(const EnumDescriptor& type) {
  for (int i = 0; i < type.value_count(); ++i) {
    const EnumValueDescriptor& value = *type.value(i);
    check_about(value, value.options().GetExtension(proto::about));
  }
}

// `seen` has the messages visited before. A section must have one path, and the alternatives of a
// variant are distinguished by type. So no two fields may have the same message type.
void check_section(const Descriptor& section, std::set<const Descriptor*>& seen) {
  require(seen.insert(&section).second, section, "is the type of two fields");
  for (int i = 0; i < section.field_count(); ++i) {
    const FieldDescriptor& field = *section.field(i);
    check_field(field);
    if (field.enum_type() != nullptr) check_enum(*field.enum_type());
    if (field.message_type() != nullptr) check_section(*field.message_type(), seen);
  }
}

}  // namespace

void resolve_likes(google::protobuf::FileDescriptorSet* files) {
  std::map<std::string, proto::FieldNote*> own, alike;  // by "GptConfig.layers"
  for (auto& file : *files->mutable_file())
    for (auto& section : *file.mutable_message_type())
      for (auto& field : *section.mutable_field()) {
        if (!field.options().HasExtension(proto::field)) continue;
        proto::FieldNote* note = field.mutable_options()->MutableExtension(proto::field);
        (note->has_like() ? alike : own)[section.name() + "." + field.name()] = note;
      }
  for (const auto& [name, note] : alike) {
    const auto other = own.find(note->like());
    if (other == own.end())
      throw std::runtime_error(name + ": `like` names no field with a note of its own");
    note->clear_like();
    proto::FieldNote merged = *other->second;
    merged.MergeFrom(*note);
    *note = merged;
  }
}

void check_schema(const Descriptor& root) {
  std::set<const Descriptor*> seen;
  check_section(root, seen);
}

}  // namespace lockstep::config
