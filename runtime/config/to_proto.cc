#include "runtime/config/to_proto.h"

#include "runtime/config/fields.h"

namespace lockstep {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

class SectionWriter final : public FieldVisitor {
 public:
  // Writes to `message`, which must outlive the writer.
  explicit SectionWriter(Message* message)
      : FieldVisitor(message->GetDescriptor()), message_(message), to_(*message->GetReflection()) {}

  void field(const char* name, bool& value) override { to_.SetBool(message_, visit(name), value); }

  void field(const char* name, uint64_t& value) override {
    to_.SetUInt64(message_, visit(name), value);
  }

  void field(const char* name, std::string& value) override {
    to_.SetString(message_, visit(name), value);
  }

  void field(const char* name, std::vector<std::string>& value) override {
    const FieldDescriptor* f = visit(name);
    for (const std::string& element : value) to_.AddString(message_, f, element);
  }

  void field(const char* name, int64_t& value, const IntegerLimit&) override {
    to_.SetInt64(message_, visit(name), value);
  }

  void field(const char* name, std::vector<int64_t>& value, const IntegerLimit&) override {
    const FieldDescriptor* f = visit(name);
    for (const int64_t element : value) to_.AddInt64(message_, f, element);
  }

  void field(const char* name, float& value, const RealLimit&) override {
    to_.SetFloat(message_, visit(name), value);
  }

  void field(const char* name, double& value, const RealLimit&) override {
    to_.SetDouble(message_, visit(name), value);
  }

  void field(const char* name, std::vector<float>& value, const RealLimit&) override {
    const FieldDescriptor* f = visit(name);
    for (const float element : value) to_.AddFloat(message_, f, element);
  }

  bool applies(const char* name, bool condition, const char* /*when*/) override {
    if (!condition) visit(name);
    return condition;
  }

  std::unique_ptr<FieldVisitor> section(const char* name) override {
    return std::make_unique<SectionWriter>(to_.MutableMessage(message_, visit(name)));
  }

  std::unique_ptr<FieldVisitor> option(const char* name, bool held) override {
    const FieldDescriptor* f = visit(name);
    if (!held) return nullptr;
    return std::make_unique<SectionWriter>(to_.MutableMessage(message_, f));
  }

  void require_one_of(const char* /*oneof*/) override {}  // a variant always holds one

 private:
  void enum_field(const char* name, int& value) override {
    to_.SetEnumValue(message_, visit(name), value);
  }

  Message* const message_;
  const Reflection& to_;
};

}  // namespace

proto::RunConfig to_proto(const RunConfig& config) {
  proto::RunConfig message;
  SectionWriter writer(&message);
  RunConfig copy = config;  // visitors take fields that they may change
  visit_fields(writer, copy);
  return message;
}

}  // namespace lockstep
