#include "models/huggingface/open_config.h"

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace lockstep::huggingface {

OpenConfig::OpenConfig(const std::filesystem::path& folder)
    : origin((folder / kConfigFile).string()) {
  constexpr size_t kMostBytes = size_t{16} << 20;
  if (!std::filesystem::is_regular_file(origin))
    throw ConfigError(
        "model.from: value is \"{}\"; allowed: a folder with a {}", folder.string(), kConfigFile);
  try {
    json = Json::parse(read_file(origin, kMostBytes));
  } catch (const JsonError& error) {
    throw ConfigError("{}: {}", origin, error.what());
  } catch (const IoError& error) {
    throw ConfigError("{}", error.what());
  }
  ConfigFields fields(json, origin);
  family = family_of_type(fields.text("model_type", ""));
  if (family == nullptr) fields.refuse("model_type", known_types());
}

}  // namespace lockstep::huggingface
