#include "runtime/config/expand.h"

#include <google/protobuf/reflection.h>

#include "runtime/base/error.h"
#include "runtime/config/to_proto.h"

namespace lockstep {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// A field of a message, to be asked about and changed.
struct Member {
  Message* message;
  const FieldDescriptor* field;

  Member(Message* of, const char* name)
      : message(of), field(of->GetDescriptor()->FindFieldByName(name)) {
    LOCKSTEP_CHECK(field != nullptr, "{}", name);
  }
  bool given() const { return message->GetReflection()->HasField(*message, field); }
  std::string text() const { return message->GetReflection()->GetString(*message, field); }
  void set(const std::string& text) const {
    message->GetReflection()->SetString(message, field, text);
  }
  void clear() const { message->GetReflection()->ClearField(message, field); }
  Message* section() const { return message->GetReflection()->MutableMessage(message, field); }
};

// The section of the choice that is given; null: none.
const FieldDescriptor* section_of(const Message& model) {
  return model.GetReflection()->GetOneofFieldDescriptor(
      model, model.GetDescriptor()->FindOneofByName("model"));
}

}  // namespace

void expand_model(const ModelSource& model_in, Message* config) {
  const Member model(config, "model");
  if (!model.given()) return;
  const Member from(model.section(), "from");
  if (!from.given()) return;
  const std::string folder = from.text();
  from.clear();
  if (folder.empty()) return;
  if (!model_in) throw ConfigError("model.from: allowed: only in the config file of a command");
  RunConfig found;
  found.model = model_in(folder);
  const auto complete = to_proto(found);
  Message* const whole = Member(complete.get(), "model").section();
  const FieldDescriptor* const given = section_of(*model.section());
  const FieldDescriptor* const there = section_of(*whole);
  if (given != nullptr && given != there)
    throw ConfigError("model.from: '{}' holds a model of section {}; the config gives section {}",
                      folder,
                      there->name(),
                      given->name());
  whole->MergeFrom(*model.section());
  model.section()->CopyFrom(*whole);
  const Member init_from(Member(config, "train").section(), "init_from");
  if (!init_from.given()) init_from.set(folder);
}

}  // namespace lockstep
