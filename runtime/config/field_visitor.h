#pragma once
// One list of fields, two directions: visit_fields (fields.h) names every field of every section
// once; a FieldVisitor reads them from a message into the structs, or writes them back.

#include <google/protobuf/message.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"

namespace lockstep {

// Visits one section. A field that a section's list forgets is a broken invariant: see finish().
class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;

  // One field of the section. A reader leaves `value` as it is (the default) where the message
  // does not set the field, and throws ConfigError where the result is outside the limit.
  virtual void field(const char* name, bool& value) = 0;
  virtual void field(const char* name, uint64_t& value) = 0;
  virtual void field(const char* name, std::string& value) = 0;
  virtual void field(const char* name, std::vector<std::string>& value) = 0;
  virtual void field(const char* name, int64_t& value, const IntegerLimit& limit) = 0;
  virtual void field(const char* name, std::vector<int64_t>& value, const IntegerLimit& limit) = 0;
  virtual void field(const char* name, float& value, const RealLimit& limit) = 0;
  virtual void field(const char* name, double& value, const RealLimit& limit) = 0;
  virtual void field(const char* name, std::vector<float>& value, const RealLimit& limit) = 0;

  // Enums have the same numbers in the structs and in the schema.
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void field(const char* name, Enum& value) {
    int number = static_cast<int>(value);
    enum_field(name, number);
    value = static_cast<Enum>(number);
  }

  // For a field whose default is not neutral and that only some settings use: true when it is to
  // be visited. Where `condition` is false a reader refuses a message that sets it ("allowed:
  // WHEN"), and a writer leaves it out.
  virtual bool applies(const char* name, bool condition, const char* when) = 0;

  // A visitor of the section below this one; visited whether or not a message has it.
  virtual std::unique_ptr<FieldVisitor> section(const char* name) = 0;

  // A visitor of one member of a oneof, or of a section that may be left out; null when it is not
  // the one in force, or left out: for a reader, when
  // the message does not have it; for a writer, when `held` is false.
  virtual std::unique_ptr<FieldVisitor> option(const char* name, bool held) = 0;

  // To be called after the options of a oneof: a reader refuses a message that has none of them.
  virtual void require_one_of(const char* oneof) = 0;

  // Checks that every field of the section's message was visited.
  void finish() const {
    LOCKSTEP_CHECK(visited_ == type_->field_count(),
                   "{}: {} of {} fields are listed",
                   type_->full_name(),
                   visited_,
                   type_->field_count());
  }

 protected:
  explicit FieldVisitor(const google::protobuf::Descriptor* type) : type_(type) {}

  virtual void enum_field(const char* name, int& value) = 0;

  // The field called `name`, which counts as visited from now on.
  const google::protobuf::FieldDescriptor* visit(const char* name) {
    ++visited_;
    return find(name);
  }
  const google::protobuf::FieldDescriptor* find(const char* name) const {
    const google::protobuf::FieldDescriptor* field = type_->FindFieldByName(name);
    LOCKSTEP_CHECK(field != nullptr, "{} has no field {}", type_->full_name(), name);
    return field;
  }

 private:
  const google::protobuf::Descriptor* type_;
  int visited_ = 0;
};

}  // namespace lockstep
