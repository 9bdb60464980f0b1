#include "models/huggingface/open_config.h"

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/lfs_pointer.h"

namespace lockstep::huggingface {

Json read_json(const std::filesystem::path& path) {
  constexpr size_t kMaxBytes = size_t{16} << 20;
  try {
    const std::string text = read_file(path, kMaxBytes);
    if (is_lfs_pointer(text)) throw ConfigError("{}: {}", path.string(), kLfsAdvice);
    return Json::parse(text);
  } catch (const JsonError& error) {
    throw ConfigError("{}: {}", path.string(), error.what());
  } catch (const IoError& error) {
    throw ConfigError("{}", error.what());
  }
}

OpenConfig::OpenConfig(const std::filesystem::path& folder, const char* field)
    : origin((folder / kConfigFile).string()) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(origin, error))
    throw ConfigError(
        "{}: value is \"{}\"; allowed: a folder with a {}", field, folder.string(), kConfigFile);
  json = read_json(origin);
  ConfigFields fields(json, origin);
  family = family_of_type(fields.text("model_type", ""));
  if (family == nullptr) fields.refuse("model_type", known_types());
}

}  // namespace lockstep::huggingface
