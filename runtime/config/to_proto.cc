#include "runtime/config/to_proto.h"

#include <google/protobuf/reflection.h>

#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "runtime/config/run_config_visits.h"
#include "runtime/config/schema.h"

namespace lockstep::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

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
  std::unique_ptr<Message> message = new_config_message();
  SectionWriter writer(message.get(), sections);
  RunConfig copy = config;  // a visitor gets mutable references
  visit_fields(writer, copy);
  return message;
}

}  // namespace lockstep::config
