#include "models/onnx/opened_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/total_loss.h"

namespace lockstep::onnx {
namespace {

// A value that the config names becomes an output where a node of the file's graph computes it.
void add_output(File& file, const std::string& name) {
  const auto is_it = [&](int number) {
    return number >= 0 && file.values[static_cast<size_t>(number)].name == name &&
           !file.values[static_cast<size_t>(number)].of_function;
  };
  if (name.empty() || std::ranges::any_of(file.outputs, is_it)) return;
  for (const Node& node : file.nodes) {
    const auto found = std::ranges::find_if(node.outputs, is_it);
    if (found != node.outputs.end()) return file.outputs.push_back(*found);
  }
}

}  // namespace

std::shared_ptr<const OpenedFile> open_file(const OnnxConfig& config) {
  static std::mutex mutex;
  static std::map<std::vector<std::string>, std::shared_ptr<const OpenedFile>> opened;  // by names
  if (config.file.empty()) refuse_value("model.onnx.file", "\"\"", "the path of an ONNX file");
  const std::lock_guard lock(mutex);
  std::vector<std::string> names = {config.file, config.output};
  for (const OnnxLoss& loss : config.losses) names.push_back(loss.output);
  std::shared_ptr<const OpenedFile>& found = opened[names];
  if (found == nullptr) {
    auto fresh = std::make_shared<OpenedFile>();
    fresh->file = read_file(config.file);
    for (const std::string& name : std::span(names).subspan(1)) add_output(fresh->file, name);
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

std::vector<size_t> outputs_of(const OpenedFile& opened, const OnnxConfig& config) {
  std::vector<std::string> names;
  for (const int output : opened.file.outputs)
    names.push_back(opened.file.values[static_cast<size_t>(output)].name);
  const auto place_of = [&](const std::string& name, const char* field) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end())
      refuse_value(field,
                   in_quotes(name),
                   fmt::format("an output of {}: {}, or any value that its nodes compute",
                               config.file,
                               fmt::join(names, ", ")));
    return static_cast<size_t>(found - names.begin());
  };
  std::vector<size_t> places = {0};
  if (!config.output.empty()) places[0] = place_of(config.output, "model.onnx.output");
  for (const OnnxLoss& loss : config.losses) {
    places.push_back(place_of(loss.output, "model.onnx.losses.output"));
    if (std::ranges::count(places, places.back()) > 1)
      refuse_value("model.onnx.losses.output",
                   in_quotes(loss.output),
                   "outputs that are named once, and not model.onnx.output itself");
  }
  if (places.size() > TotalLossAttributes::kMostLosses)
    throw ConfigError("model.onnx.losses: {} are given; allowed: at most {}",
                      config.losses.size(),
                      TotalLossAttributes::kMostLosses - 1);
  return places;
}

}  // namespace lockstep::onnx
