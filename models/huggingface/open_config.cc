#include "models/huggingface/open_config.h"

#include "models/huggingface/folder.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/file_kind.h"

namespace lockstep::huggingface {

Json read_json(const std::filesystem::path& path) {
  constexpr size_t kMaxBytes = size_t{16} << 20;
  try {
    const std::string text = read_file(path, kMaxBytes);
    if (file_kind(text)) throw ConfigError("{}: {}", path.string(), is_not(text, "a JSON file"));
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
    throw ConfigError("{}: \"{}\" {}", field, folder.string(), what_it_is_instead(folder));
  json = read_json(origin);
  ConfigFields fields(json, origin);
  if (const Json* const type = json.find("_class_name"); type != nullptr && type->is_string())
    throw ConfigError(
        "{}: describes a diffusers model ({}), which is not supported; export its network as an "
        "ONNX file, and use model.onnx",
        origin,
        type->get<std::string>());
  family = family_of_type(fields.text("model_type", ""));
  if (family == nullptr) fields.refuse("model_type", known_types());
}

}  // namespace lockstep::huggingface
