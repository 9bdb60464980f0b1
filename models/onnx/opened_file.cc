#include "models/onnx/opened_file.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"

namespace lockstep::onnx {

std::shared_ptr<const OpenedFile> open_file(const OnnxConfig& config) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const OpenedFile>> opened;
  if (config.file.empty()) refuse_value("model.onnx.file", "\"\"", "the path of an ONNX file");
  const std::lock_guard lock(mutex);
  std::shared_ptr<const OpenedFile>& found = opened[config.file];
  if (found == nullptr) {
    auto fresh = std::make_shared<OpenedFile>();
    fresh->file = read_file(config.file);
    fresh->classes = classify(fresh->file);
    found = std::move(fresh);
  }
  return found;
}

void check_shared(const OpenedFile& opened, const OnnxConfig& config) {
  if (config.allow_shared) return;
  const std::vector<MergedInitializer> merged = merged_initializers(opened.file, opened.classes);
  if (merged.empty()) return;
  throw ConfigError(
      "{}: \"{}\" is shared by {} nodes, as exporters do with parameters that are equal at first, and "
      "would be trained as one; export with torch.onnx.export(..., dynamo=True, optimize=False), or "
      "say model.onnx.allow_shared: true where it is meant so",
      config.file,
      merged.front().name,
      merged.front().nodes.size());
}

size_t output_of(const OpenedFile& opened, const OnnxConfig& config) {
  const auto name_of = [&](int number) {
    return opened.file.values[static_cast<size_t>(number)].name;
  };
  std::vector<std::string> names;
  for (size_t i = 0; i < opened.file.outputs.size(); ++i) {
    names.push_back(name_of(opened.file.outputs[i]));
    if (config.output.empty() || names.back() == config.output) return i;
  }
  refuse_value("model.onnx.output",
               in_quotes(config.output),
               fmt::format("an output of {}: {}", config.file, fmt::join(names, ", ")));
}

}  // namespace lockstep::onnx
