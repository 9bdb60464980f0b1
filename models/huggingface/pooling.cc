#include "models/huggingface/pooling.h"

#include <string>
#include <vector>

#include "models/huggingface/open_config.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace lockstep::huggingface {
namespace fs = std::filesystem;
namespace {

// Prefix of the boolean fields that select a pooling; one or more of them are true.
const std::string kMode = "pooling_mode_";
constexpr const char* kMeanTokens = "mean_tokens";
constexpr const char* kFirst = "cls_token";

}  // namespace

FolderPooling read_pooling(const fs::path& folder) {
  const fs::path path = folder / kPoolingFile;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return FolderPooling::kUnspecified;
  const Json json = read_json(path);
  if (json.kind() != Json::Kind::kObject) throw ConfigError("{}: not a JSON object", path.string());
  std::vector<std::string> modes;
  for (const std::string& name : json.names()) {
    const Json& value = json.at(name);
    if (name.starts_with(kMode) && value.kind() == Json::Kind::kBoolean && value.get<bool>())
      modes.push_back(name.substr(kMode.size()));
  }
  if (modes.size() != 1) return FolderPooling::kOther;
  if (modes[0] == kMeanTokens) return FolderPooling::kMean;
  return modes[0] == kFirst ? FolderPooling::kFirstToken : FolderPooling::kOther;
}

const char* describe(FolderPooling pooling) {
  switch (pooling) {
    case FolderPooling::kUnspecified: return "not specified";
    case FolderPooling::kFirstToken: return "the first token";
    case FolderPooling::kMean: return "the mean of all tokens";
    case FolderPooling::kOther: break;
  }
  return "of an unsupported kind";
}

void write_mean_pooling(const fs::path& folder, int64_t width) {
  Json json = Json::object();
  json["word_embedding_dimension"] = width;
  json[kMode + kFirst] = false;
  json[kMode + kMeanTokens] = true;
  json[kMode + "max_tokens"] = false;
  json[kMode + "mean_sqrt_len_tokens"] = false;
  const fs::path path = folder / kPoolingFile;
  fs::create_directory(path.parent_path());
  write_file_atomically(path, json.dump({.indent = 2}) + "\n");
}

}  // namespace lockstep::huggingface
