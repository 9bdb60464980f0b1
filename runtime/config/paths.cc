#include "runtime/config/paths.h"

#include <google/protobuf/reflection.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "runtime/config/proto_conversion.h"
#include "runtime/config/schema.h"
#include "runtime/config/text.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// `base` is used for paths that are relative to data.dir if they exist there.
std::string recorded_path(const std::string& path, proto::Path kind, const fs::path& base) {
  std::error_code error;
  const bool below_data = kind == proto::DATA_DIR_OR_HERE && fs::exists(base / path, error);
  return below_data ? path : absolute_path(path);
}

void make_absolute(Message* section, const fs::path& data_dir) {
  const auto& type = *section->GetDescriptor();
  const auto& to = *section->GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    if (field->is_repeated() || !to.HasField(*section, field)) continue;
    if (field->message_type() != nullptr) {
      make_absolute(to.MutableMessage(section, field), data_dir);
    } else if (const proto::Path kind = note_of(*field).path(); kind != proto::NO_PATH) {
      to.SetString(section, field, recorded_path(to.GetString(*section, field), kind, data_dir));
    }
  }
}

// Whether the last parts of `path` are those of `end`.
bool ends_in(const fs::path& path, const fs::path& end) {
  const auto count = std::distance(end.begin(), end.end());
  if (end.empty() || *end.begin() == ".." || count > std::distance(path.begin(), path.end()))
    return false;
  return std::equal(end.begin(), end.end(), std::prev(path.end(), count));
}

}  // namespace

std::string absolute_path(const std::string& path) {
  if (path.empty()) return "";
  std::error_code error;
  const fs::path given = fs::absolute(path, error);
  if (error) return path;  // the current folder has been removed
  fs::path normal = given.lexically_normal();
  // ".." behind a link leads elsewhere than the text.
  if (path.find("..") != std::string::npos && fs::exists(given, error) &&
      !fs::equivalent(given, normal, error))
    normal = fs::canonical(given, error);
  if (error && normal.empty()) return path;
  if (!normal.has_filename() && normal.has_relative_path()) normal = normal.parent_path();
  return normal.string();
}

bool same_path(const std::string& one, const std::string& other) {
  if (one == other) return true;
  if (one.empty() || other.empty()) return false;
  const fs::path a = absolute_path(one), b = absolute_path(other);
  std::error_code error;
  if (a == b || fs::equivalent(a, b, error)) return true;
  const fs::path first(one), second(other);
  if (first.is_absolute() == second.is_absolute()) return false;
  return first.is_absolute() ? ends_in(a, second.lexically_normal())
                             : ends_in(b, first.lexically_normal());
}

std::string recorded_text(const RunConfig& config) {
  RunConfig recorded = config;
  if (recorded.data.dir.empty()) recorded.data.dir = std::string(1, '.');
  const std::unique_ptr<Message> message = to_proto(recorded);
  make_absolute(message.get(), recorded.data.dir);
  return print_text(*message);
}

}  // namespace lockstep::config
