#include "runtime/config/proto_conversion.h"

#include <google/protobuf/reflection.h>

#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/config/hardware_visits.h"
#include "runtime/config/limits.h"
#include "runtime/config/names.h"
#include "runtime/config/run_config_visits.h"
#include "runtime/config/schema.h"

namespace lockstep::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

void check_value(const std::string& path, int64_t value, const FieldDescriptor& field) {
  check_limit(path, value, integer_limit(field));
}

void check_value(const std::string& path, float value, const FieldDescriptor& field) {
  check_limit(path, value, real_limit(field));
}

void check_value(const std::string& path, double value, const FieldDescriptor& field) {
  check_limit(path, value, real_limit(field));
}

// Values of other types have no limits.
template <typename Value>
void check_value(const std::string&, const Value&, const FieldDescriptor&) {}

// NUL bytes are rejected, because paths and column names become C strings or lines of text later.
void check_value(const std::string& path, const std::string& value, const FieldDescriptor&) {
  if (value.find('\0') != std::string::npos) {
    refuse_value(path, in_quotes(value), "text without NUL bytes");
  }
}

// The path of an element of a list of sections: "train.groups[0]".
std::string element_path(const std::string& list, int index) {
  return list + "[" + std::to_string(index) + "]";
}

// Checks that the text fields that the schema requires are given, in `message` and below.
void check_required(const Message& message, const std::string& prefix) {
  const Reflection& from = *message.GetReflection();
  const auto& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* f = type.field(i);
    if (f->message_type() != nullptr && f->is_repeated()) {
      for (int k = 0; k < from.FieldSize(message, f); ++k)
        check_required(from.GetRepeatedMessage(message, f, k),
                       element_path(prefix + f->name(), k) + ".");
    } else if (f->message_type() != nullptr && from.HasField(message, f)) {
      check_required(from.GetMessage(message, f), prefix + f->name() + ".");
    }
    if (!note_of(*f).has_required()) continue;
    const bool missing =
        f->is_repeated() ? from.FieldSize(message, f) == 0 : from.GetString(message, f).empty();
    if (missing) {
      throw ConfigError("{}{}: missing; allowed: {}", prefix, f->name(), note_of(*f).required());
    }
  }
}

// Reads the fields of one section. A visitor for visit_fields().
class SectionReader {
 public:
  // `message` must outlive the reader; `path` is "" for the root.
  SectionReader(const Message& message, std::string path)
      : message_(message), from_(*message.GetReflection()), path_(std::move(path)) {}

  template <typename Value>
  void field(const char* name, Value& value) {
    const FieldDescriptor* f = find(name);
    if constexpr (std::is_arithmetic_v<Value>) {
      if (!applies(message_, *f)) {
        if (!from_.HasField(message_, f)) return;
        get(f, value);
        refuse_value(path(name), value, when_words(path_, *f));
      }
      if (const std::string words = required_words(message_, path_, *f); !words.empty())
        throw ConfigError("{}: {}; allowed: {}", path(name), words, describe_type(*f));
    }
    get(f, value);
    check_value(path(name), value, *f);
  }

  template <typename Element>
  void field(const char* name, std::vector<Element>& value) {
    const FieldDescriptor* f = find(name);
    const auto given = from_.GetRepeatedFieldRef<Element>(message_, f);
    if (!given.empty()) value.assign(given.begin(), given.end());
    for (const Element& element : value) check_value(path(name), element, *f);
  }

  template <typename Section>
  void section(const char* name, Section& section) {
    read_section(find(name), section);
  }

  template <typename Section>
  void section(const char* name, std::optional<Section>& section) {
    const FieldDescriptor* f = find(name);
    if (from_.HasField(message_, f)) read_section(f, section.emplace());
  }

  template <typename Section>
  void sections(const char* name, std::vector<Section>& sections) {
    const FieldDescriptor* f = find(name);
    for (int i = 0; i < from_.FieldSize(message_, f); ++i) {
      SectionReader below(from_.GetRepeatedMessage(message_, f, i), element_path(path(name), i));
      visit_fields(below, sections.emplace_back());
    }
  }

  template <typename... Members>
  void one_of(const char* name, std::variant<Members...>& member) {
    const OneofDescriptor* choice = message_.GetDescriptor()->FindOneofByName(name);
    const FieldDescriptor* given = from_.GetOneofFieldDescriptor(message_, choice);
    if (given == nullptr) {
      std::vector<std::string> names;
      for (int i = 0; i < choice->field_count(); ++i) names.push_back(choice->field(i)->name());
      throw ConfigError("{}: missing; allowed: one of {}", path_, joined(names));
    }
    (read_member<Members>(given, member), ...);
  }

 private:
  template <typename Member, typename Variant>
  void read_member(const FieldDescriptor* given, Variant& member) {
    if (given->name() == Member::kName) read_section(given, member.template emplace<Member>());
  }

  template <typename Section>
  void read_section(const FieldDescriptor* f, Section& section) {
    SectionReader below(from_.GetMessage(message_, f), path(f->name()));
    visit_fields(below, section);
  }

  // Gets the value, or the default if the message does not set the field.
  void get(const FieldDescriptor* f, bool& value) { value = from_.GetBool(message_, f); }
  void get(const FieldDescriptor* f, int64_t& value) { value = from_.GetInt64(message_, f); }
  void get(const FieldDescriptor* f, uint64_t& value) { value = from_.GetUInt64(message_, f); }
  void get(const FieldDescriptor* f, float& value) { value = from_.GetFloat(message_, f); }
  void get(const FieldDescriptor* f, double& value) { value = from_.GetDouble(message_, f); }
  void get(const FieldDescriptor* f, std::string& value) { value = from_.GetString(message_, f); }
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void get(const FieldDescriptor* f, Enum& value) {
    value = static_cast<Enum>(from_.GetEnumValue(message_, f));
  }

  const FieldDescriptor* find(const char* name) const {
    return message_.GetDescriptor()->FindFieldByName(name);
  }

  std::string path(const std::string& name) const {
    return path_.empty() ? name : path_ + "." + name;
  }

  const Message& message_;
  const Reflection& from_;
  const std::string path_;
};

// A struct from the message of a whole file.
template <typename Root>
Root read_message(const Message& message) {
  Root root;
  SectionReader reader(message, "");
  visit_fields(reader, root);
  check_required(message, "");
  return root;
}

}  // namespace

RunConfig from_proto(const Message& message) { return read_message<RunConfig>(message); }

Hardware hardware_from_proto(const Message& message) { return read_message<Hardware>(message); }

namespace {

// Writes the fields of one section. A visitor for visit_fields().
class SectionWriter {
 public:
  // Writes to `message`, which must outlive the writer.
  SectionWriter(Message* message, Sections sections)
      : message_(message), to_(*message->GetReflection()), sections_(sections) {}

  template <typename Value>
  void field(const char* name, Value& value) {
    const FieldDescriptor* f = find(name);
    if (applies(*message_, *f)) set(f, value);
  }

  template <typename Element>
  void field(const char* name, std::vector<Element>& value) {
    const auto elements = to_.GetMutableRepeatedFieldRef<Element>(message_, find(name));
    for (const Element& element : value) elements.Add(element);
  }

  template <typename Section>
  void section(const char* name, Section& section) {
    const bool if_changed =
        sections_ == Sections::kChanged && note_of(*find(name)).presence() == proto::IF_CHANGED;
    if (!if_changed || !(section == Section{})) write_section(name, section);
  }

  template <typename Section>
  void section(const char* name, std::optional<Section>& section) {
    if (section) write_section(name, *section);
  }

  template <typename Section>
  void sections(const char* name, std::vector<Section>& sections) {
    for (Section& section : sections) {
      SectionWriter below(to_.AddMessage(message_, find(name)), sections_);
      visit_fields(below, section);
    }
  }

  template <typename... Members>
  void one_of(const char* /*name*/, std::variant<Members...>& member) {
    std::visit([&](auto& section) { write_section(section.kName, section); }, member);
  }

 private:
  template <typename Section>
  void write_section(const char* name, Section& section) {
    SectionWriter below(to_.MutableMessage(message_, find(name)), sections_);
    visit_fields(below, section);
  }

  void set(const FieldDescriptor* f, bool value) { to_.SetBool(message_, f, value); }
  void set(const FieldDescriptor* f, int64_t value) { to_.SetInt64(message_, f, value); }
  void set(const FieldDescriptor* f, uint64_t value) { to_.SetUInt64(message_, f, value); }
  void set(const FieldDescriptor* f, float value) { to_.SetFloat(message_, f, value); }
  void set(const FieldDescriptor* f, double value) { to_.SetDouble(message_, f, value); }
  void set(const FieldDescriptor* f, const std::string& value) {
    to_.SetString(message_, f, value);
  }
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void set(const FieldDescriptor* f, Enum value) {
    to_.SetEnumValue(message_, f, static_cast<int>(value));
  }

  const FieldDescriptor* find(const char* name) const {
    return message_->GetDescriptor()->FindFieldByName(name);
  }

  Message* const message_;
  const Reflection& to_;
  const Sections sections_;
};

}  // namespace

std::unique_ptr<Message> to_proto(const RunConfig& config, Sections sections) {
  std::unique_ptr<Message> message = new_message();
  SectionWriter writer(message.get(), sections);
  RunConfig copy = config;  // a visitor gets mutable references
  visit_fields(writer, copy);
  return message;
}

std::unique_ptr<Message> hardware_to_proto(const Hardware& hardware) {
  std::unique_ptr<Message> message = new_message(hardware_type());
  SectionWriter writer(message.get(), Sections::kChanged);
  Hardware copy = hardware;
  visit_fields(writer, copy);
  return message;
}

}  // namespace lockstep::config
