#include "models/onnx/bind/opened_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/config/pattern.h"
#include "runtime/graph/ops/total_loss.h"

namespace lockstep::onnx {
namespace {

// A value that the config names becomes an output if a node of the file's graph computes it.
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

// How alike two texts are, from 0 to 1: the share of their letters that is in their longest common
// subsequence.
double likeness(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1, 0);  // for the letters of a so far and each prefix of b
  for (const char letter : a) {
    size_t diagonal = 0;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = letter == b[j - 1] ? diagonal + 1 : std::max(above, row[j - 1]);
      diagonal = above;
    }
  }
  return 2.0 * static_cast<double>(row.back()) / static_cast<double>(a.size() + b.size() + 1);
}

// The names that are most like the text, at most kMaxNames.
std::string near_names(std::vector<std::string> names, const std::string& text) {
  constexpr size_t kMaxNames = 5;
  std::ranges::stable_sort(
      names, std::greater(), [&](const std::string& name) { return likeness(name, text); });
  const size_t others = names.size() - std::min(names.size(), kMaxNames);
  names.resize(names.size() - others);
  for (std::string& name : names) name = in_quotes(name);
  return fmt::format("{}{}",
                     fmt::join(names, ", "),
                     others > 0 ? fmt::format(" or one of {} others", others) : "");
}

// Returns a function that tells whether one of the patterns matches a name. Throws ConfigError if a
// pattern matches none of `names`.
std::function<bool(const std::string&)> found_by(const std::vector<std::string>& texts,
                                                 const std::string& field,
                                                 const std::string& path,
                                                 const std::vector<std::string>& names) {
  if (texts.empty()) return nullptr;
  auto patterns = std::make_shared<std::vector<config::Pattern>>();
  for (const std::string& text : texts) {
    patterns->emplace_back(field, text);
    if (std::ranges::none_of(
            names, [&](const std::string& name) { return patterns->back().found_in(name); }))
      throw ConfigError(
          "{}: value is {}, which matches no initializer; allowed: a part of the name of a "
          "floating-point initializer of {}, such as {}",
          field,
          in_quotes(text),
          path,
          near_names(names, text));
  }
  return [patterns](const std::string& name) {
    return std::ranges::any_of(
        *patterns, [&](const config::Pattern& pattern) { return pattern.found_in(name); });
  };
}

Selection selection_of(const OnnxConfig& config, const File& file) {
  const std::vector<std::string> trainable = names_of_numbers(file, true);
  Selection selection{
      .declared = config.parameters == OnnxConfig::Parameters::kDeclared,
      .trainable = found_by(config.trainable, "model.onnx.trainable", file.path, trainable),
      .constant = found_by(
          config.constant, "model.onnx.constant", file.path, names_of_numbers(file, false))};
  if (!selection.trainable || !selection.constant) return selection;
  for (const std::string& name : trainable)
    if (selection.trainable(name) && selection.constant(name))
      throw ConfigError(
          "model.onnx.constant: matches {}, which model.onnx.trainable matches too; allowed: "
          "patterns that do not match the same name",
          in_quotes(name));
  return selection;
}

// A file that is read once for all configs that name it and the same outputs.
std::shared_ptr<const File> read_once(const std::vector<std::string>& names) {
  static std::map<std::vector<std::string>, std::shared_ptr<const File>> files;  // by names
  std::shared_ptr<const File>& found = files[names];
  if (found == nullptr) {
    auto fresh = std::make_shared<File>(read_file(names.front()));
    for (const std::string& name : std::span(names).subspan(1)) add_output(*fresh, name);
    found = std::move(fresh);
  }
  return found;
}

}  // namespace

std::shared_ptr<const OpenedFile> open_file(const OnnxConfig& config) {
  using Key = std::pair<std::vector<std::string>, std::array<std::vector<std::string>, 2>>;
  static std::mutex mutex;
  static std::map<std::pair<Key, OnnxConfig::Parameters>, std::shared_ptr<const OpenedFile>> opened;
  if (config.file.empty())
    config::refuse_value("model.onnx.file", "\"\"", "the path of an ONNX file");
  const std::lock_guard lock(mutex);
  std::vector<std::string> names = {config.file, config.output};
  for (const OnnxLoss& loss : config.losses) names.push_back(loss.output);
  for (const OnnxPrediction& prediction : config.predictions) names.push_back(prediction.output);
  std::shared_ptr<const OpenedFile>& found =
      opened[{{names, {config.trainable, config.constant}}, config.parameters}];
  if (found == nullptr) {
    const std::shared_ptr<const File> file = read_once(names);
    found = std::make_shared<OpenedFile>(file, classify(*file, selection_of(config, *file)));
  }
  return found;
}

void require_unshared(const OpenedFile& opened, const OnnxConfig& config) {
  // An exporter that merges parameters leaves out the names of all but one. So does an exporter
  // that merges nothing, if the module has one parameter under several names.
  const File& file = opened.file;
  const bool lost =
      file.optimized ? !file.lost_parameters.empty() : !file.dropped_parameters.empty();
  if (config.allow_shared || (file.declares && !lost)) return;
  const std::vector<MergedInitializer> merged = merged_initializers(opened.file, opened.classes);
  if (merged.empty()) return;
  throw ConfigError(
      "{}: \"{}\" is shared by {} nodes, as exporters do with parameters that are equal at first, "
      "and would be trained as one; export with torch.onnx.export(..., dynamo=True, "
      "optimize=False), or set model.onnx.allow_shared: true if the module shares it",
      config.file,
      merged.front().name,
      merged.front().nodes.size());
}

std::vector<size_t> outputs_of(const OpenedFile& opened, const OnnxConfig& config) {
  std::vector<std::string> names;
  for (const int output : opened.file.outputs)
    names.push_back(opened.file.values[static_cast<size_t>(output)].name);
  const auto index_of = [&](const std::string& name, const char* field) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end())
      config::refuse_value(field,
                           in_quotes(name),
                           "an output of {}: {}, or any value that its nodes compute",
                           config.file,
                           fmt::join(names, ", "));
    return static_cast<size_t>(found - names.begin());
  };
  std::vector<size_t> indexes = {0};
  if (!config.output.empty()) indexes[0] = index_of(config.output, "model.onnx.output");
  for (const OnnxLoss& loss : config.losses) {
    indexes.push_back(index_of(loss.output, "model.onnx.losses.output"));
    if (std::ranges::count(indexes, indexes.back()) > 1)
      config::refuse_value("model.onnx.losses.output",
                           in_quotes(loss.output),
                           "outputs that are named once, and not model.onnx.output itself");
  }
  if (!config.predictions.empty() && config.loss != Loss::kOutput)
    throw ConfigError("model.onnx.predictions: allowed only with model.onnx.loss OUTPUT");
  for (const OnnxPrediction& prediction : config.predictions) {
    indexes.push_back(index_of(prediction.output, "model.onnx.predictions.output"));
    if (indexes.back() == indexes.front())
      config::refuse_value("model.onnx.predictions.output",
                           in_quotes(prediction.output),
                           "another output than model.onnx.output, the loss");
  }
  if (indexes.size() > graph::TotalLossAttributes::kMaxLosses)
    throw ConfigError("model.onnx.losses: {} are given; allowed: at most {}",
                      config.losses.size(),
                      graph::TotalLossAttributes::kMaxLosses - 1);
  return indexes;
}

}  // namespace lockstep::onnx
