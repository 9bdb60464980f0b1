#include "runtime/config/parse.h"

#include <google/protobuf/message.h>
#include <google/protobuf/reflection.h>

#include <algorithm>
#include <cerrno>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"
#include "runtime/config/limits.h"
#include "runtime/config/overrides.h"
#include "runtime/config/proto_conversion.h"
#include "runtime/config/text.h"
#include "runtime/config/validate.h"

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

// If `config`, a RunConfig, has model.from, reads that folder with `model_in`. The folder's model
// becomes the config's, except for fields that the config sets itself. If not given,
// train.init_from becomes the folder, and mean and std of data.image (or data.idx) become the
// folder's, if it has them. model.from is cleared. Throws ConfigError if the config has a section
// of another model, and passes on what model_in throws.
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

std::unique_ptr<google::protobuf::Message> read_message(const std::string& text,
                                                        const std::string& origin,
                                                        const std::vector<std::string>& overrides,
                                                        const ModelSource& model_in) {
  auto message = parse_text(text, origin);
  for (const std::string& assignment : overrides) apply_override(assignment, message.get());
  expand_model(model_in, message.get());
  return message;
}

RunConfig valid_config(const google::protobuf::Message& message) {
  RunConfig config = from_proto(message);
  validate(config);
  return config;
}

// The --set for as many ranks: the fewest lanes that they share evenly or, if none of these divides
// the batch, also the fewest that do.
std::string lanes_for(const TrainConfig& train, int ranks) {
  const int64_t limit = std::min(train.global_batch, integer_limit_of("train.lanes").high);
  int64_t uneven = 0;
  for (int64_t lanes = ranks; lanes <= limit; ++lanes) {
    if (train.global_batch % lanes != 0) continue;
    if (lanes % ranks == 0) return fmt::format("--set train.lanes={}", lanes);
    if (uneven == 0) uneven = lanes;
  }
  const int64_t batch = (train.global_batch + ranks - 1) / ranks * ranks;
  return fmt::format(
      "{}--set train.lanes={} --set train.global_batch={}",
      uneven == 0 ? "" : fmt::format("--set train.lanes={} (shared unevenly), or ", uneven),
      ranks,
      batch);
}

}  // namespace

std::string read_config_text(const std::filesystem::path& path) {
  try {
    return read_file(path, kMaxConfigBytes);
  } catch (const IoError& error) {
    if (error.error_number() == EFBIG) {
      throw ConfigError(
          "{}: too large for a config; allowed: at most {} bytes", path.string(), kMaxConfigBytes);
    }
    if (error.error_number() == EISDIR)
      throw ConfigError("config '{}' is a folder; allowed: the path of a config file",
                        path.string());
    std::string message = error.what();  // "cannot open 'x': No such file or directory"
    message.insert(std::min(message.find('\''), message.size()), "config ");
    throw ConfigError("{}", message);
  }
}

RunConfig parse_config(const std::string& text,
                       const std::string& origin,
                       const std::vector<std::string>& overrides,
                       const ModelSource& model_in) {
  return valid_config(*read_message(text, origin, overrides, model_in));
}

RunConfig parse_recorded_config(const std::string& text,
                                const std::string& origin,
                                const std::vector<std::string>& overrides) {
  RunConfig config = parse_config(text, origin, {});
  if (config.execution.precision == Precision::kAuto) config.execution.precision = Precision::kFp32;
  if (config.train.lanes == 0) config.train.lanes = 8;
  return overrides.empty() ? config : parse_config(to_text(config), origin, overrides);
}

RunConfig load_config(const std::filesystem::path& path,
                      const std::vector<std::string>& overrides,
                      const ModelSource& model_in) {
  return parse_config(read_config_text(path), path.string(), overrides, model_in);
}

std::string complete_text(const std::filesystem::path& path,
                          const std::vector<std::string>& overrides,
                          const ModelSource& model_in) {
  const auto given = read_message(read_config_text(path), path.string(), overrides, model_in);
  return print_with_origins(*to_proto(valid_config(*given), Sections::kAll), *given);
}

void validate_for_ranks(const RunConfig& config, int ranks) {
  const int64_t lanes = config.train.lanes;
  if (ranks >= 1 && ranks <= lanes) return require_residual_groups(config, ranks);
  throw ConfigError(
      "train.lanes: {} lane{} cannot be shared by {} ranks; allowed: up to {} rank{}{}",
      lanes,
      plural(lanes),
      ranks,
      lanes,
      plural(lanes),
      ranks < 1 ? "" : ", or " + lanes_for(config.train, ranks));
}

std::string to_text(const RunConfig& config) { return print_text(*to_proto(config)); }

}  // namespace lockstep::config
