#include "runtime/config/schema.h"

#include <fmt/ranges.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace lockstep::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::DynamicMessageFactory;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

const DescriptorPool& schema_pool() {
  static const DescriptorPool* pool = [] {
    google::protobuf::FileDescriptorSet files;
    LOCKSTEP_CHECK(files.ParseFromArray(kSchemaBytes, static_cast<int>(kSchemaSize)));
    auto* built = new DescriptorPool;  // never destroyed: messages may outlive static objects
    for (const auto& file : files.file())
      LOCKSTEP_CHECK(built->BuildFile(file) != nullptr, "{}", file.name());
    return built;
  }();
  return *pool;
}

const Descriptor& message_type(const char* name) {
  const Descriptor* type = schema_pool().FindMessageTypeByName(name);
  LOCKSTEP_CHECK(type != nullptr, "{}", name);
  return *type;
}

}  // namespace

const Descriptor& config_type() {
  static const Descriptor& type = message_type("lockstep.proto.RunConfig");
  return type;
}

const Descriptor& hardware_type() {
  static const Descriptor& type = message_type("lockstep.proto.Hardware");
  return type;
}

const Descriptor& root_of(const Descriptor& type) {
  return type.file() == hardware_type().file() ? hardware_type() : config_type();
}

std::unique_ptr<Message> new_message(const Descriptor& root) {
  static auto* factory = new DynamicMessageFactory(&schema_pool());
  return std::unique_ptr<Message>(factory->GetPrototype(&root)->New());
}

const proto::FieldNote& note_of(const FieldDescriptor& field) {
  return field.options().GetExtension(proto::field);
}

IntegerLimit integer_limit(const FieldDescriptor& field) {
  const proto::FieldNote& note = note_of(field);
  return {static_cast<int64_t>(note.min()), static_cast<int64_t>(note.max())};
}

RealLimit real_limit(const FieldDescriptor& field) {
  const proto::FieldNote& note = note_of(field);
  RealLimit limit;
  if (note.has_min() || note.has_above()) {
    limit.low = note.has_min() ? note.min() : note.above();
    limit.low_open = note.has_above();
  }
  if (note.has_max() || note.has_below()) {
    limit.high = note.has_max() ? note.max() : note.below();
    limit.high_open = note.has_below();
  }
  return limit;
}

bool applies(const Message& message, const FieldDescriptor& field) {
  const proto::FieldNote& note = note_of(field);
  if (!note.has_when()) return true;
  const FieldDescriptor* decider = message.GetDescriptor()->FindFieldByName(note.when().field());
  return std::ranges::count(note.when().value(),
                            message.GetReflection()->GetEnum(message, decider)->name()) > 0;
}

std::string required_words(const Message& message,
                           const std::string& section,
                           const FieldDescriptor& field) {
  const proto::When& when = note_of(field).when();
  if (when.required_with().empty() || message.GetReflection()->HasField(message, &field)) return "";
  const FieldDescriptor* decider = message.GetDescriptor()->FindFieldByName(when.field());
  const std::string& value = message.GetReflection()->GetEnum(message, decider)->name();
  if (std::ranges::count(when.required_with(), value) == 0) return "";
  return fmt::format("required with {}.{} {}", section, when.field(), value);
}

std::string when_words(const std::string& section, const FieldDescriptor& field) {
  const proto::When& when = note_of(field).when();
  return fmt::format("only with {}.{} {}", section, when.field(), fmt::join(when.value(), " or "));
}

}  // namespace lockstep::config
