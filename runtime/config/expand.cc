#include "runtime/config/expand.h"

#include <google/protobuf/reflection.h>

#include "runtime/base/error.h"
#include "runtime/config/to_proto.h"

namespace lockstep::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// A field of a message, to read or change.
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
  // Sets a number, or a list of numbers.
  void set(const std::vector<float>& numbers) const {
    const auto* reflection = message->GetReflection();
    if (!field->is_repeated()) return reflection->SetFloat(message, field, numbers.at(0));
    for (const float number : numbers) reflection->AddFloat(message, field, number);
  }
  bool is_empty() const {
    return field->is_repeated() ? message->GetReflection()->FieldSize(*message, field) == 0
                                : !given();
  }
};

// The section that the config gives for the choice; null if there is none.
const FieldDescriptor* section_of(const Message& model) {
  return model.GetReflection()->GetOneofFieldDescriptor(
      model, model.GetDescriptor()->FindOneofByName("model"));
}

bool gives_task(const Message& model, const FieldDescriptor* section) {
  if (section == nullptr) return false;
  const FieldDescriptor* const task = section->message_type()->FindFieldByName("task");
  const auto* reflection = model.GetReflection();
  return task != nullptr && reflection->GetMessage(model, section)
                                .GetReflection()
                                ->HasField(reflection->GetMessage(model, section), task);
}

// IDX data has its own numbers, one for all channels.
void expand_images(const ImageNormalisation& found, Message* config) {
  const Member data(config, "data");
  if (!data.given() || found.mean.empty()) return;
  const Member idx(data.section(), "idx");
  if (idx.given() && (found.mean.size() > 1 || found.std.size() > 1)) return;
  Message* const images = idx.given() ? idx.section() : Member(data.section(), "image").section();
  for (const auto& [name, numbers] :
       {std::pair("mean", &found.mean), std::pair("std", &found.std)}) {
    const Member member(images, name);
    if (member.is_empty()) member.set(*numbers);
  }
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
  if (!model_in) throw ConfigError("model.from: is allowed only in the config file of a command");
  const FieldDescriptor* const given = section_of(*model.section());
  FoundModel found = model_in(folder, gives_task(*model.section(), given));
  RunConfig theirs;
  theirs.model = std::move(found.model);
  const auto complete = to_proto(theirs);
  Message* const merged = Member(complete.get(), "model").section();
  const FieldDescriptor* const found_section = section_of(*merged);
  if (given != nullptr && given != found_section)
    throw ConfigError("model.from: '{}' has a model of section {}, but the config has section {}",
                      folder,
                      found_section->name(),
                      given->name());
  merged->MergeFrom(*model.section());
  model.section()->CopyFrom(*merged);
  const Member init_from(Member(config, "train").section(), "init_from");
  if (!init_from.given()) init_from.set(folder);
  expand_images(found.images, config);
}

}  // namespace lockstep::config
