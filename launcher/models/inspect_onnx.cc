#include "launcher/models/inspect_onnx.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "launcher/command_line/results.h"
#include "launcher/models/onnx_training.h"
#include "models/huggingface/folder.h"
#include "models/onnx/network.h"
#include "runtime/base/json.h"
#include "runtime/base/names.h"
#include "runtime/base/text.h"
#include "runtime/config/parse.h"

namespace lockstep::launcher {
namespace {

using onnx::File;
using onnx::FileValue;
using onnx::Initializer;

// The axes of an input that must be bound before it can be trained: by name, or as INPUT.AXIS if
// they have none.
std::vector<std::string> open_axes(const FileValue& value) {
  std::vector<std::string> axes;
  for (size_t axis = 0; axis < value.extents.size(); ++axis)
    if (const onnx::OpenExtent& extent = value.extents[axis]; extent.extent < 0)
      axes.push_back(extent.name.empty() ? fmt::format("{}.{}", value.name, axis) : extent.name);
  return axes;
}

std::vector<std::string> extents_of(const FileValue& value) {
  std::vector<std::string> extents;
  for (const onnx::OpenExtent& extent : value.extents)
    extents.push_back(extent.extent >= 0    ? std::to_string(extent.extent)
                      : extent.name.empty() ? "?"
                                            : extent.name);
  return extents;
}

std::string type_of(const FileValue& value) { return value.typed ? onnx::name_of(value.type) : ""; }

// "float (batch, 3, 32, 32)".
std::string text_of(const FileValue& value) {
  if (!value.typed) return "of unknown type";
  if (!value.has_extents) return type_of(value) + " of unknown shape";
  return fmt::format("{} ({})", type_of(value), fmt::join(extents_of(value), ", "));
}

void print_line(const std::string& line) { fmt::print("  {}\n", escape_controls(line)); }

struct Totals {
  int64_t elements = 0;
  size_t bytes = 0;
  size_t external = 0;  // tensors stored in other files
};

Totals totals_of(const File& file) {
  Totals totals;
  for (const Initializer& initializer : file.initializers) {
    totals.elements += initializer.array.size();
    totals.bytes += initializer.array.bytes();
    if (initializer.external) ++totals.external;
  }
  return totals;
}

std::map<std::string, int64_t> count_ops(const File& file) {
  std::map<std::string, int64_t> counts;
  for (const onnx::Node& node : file.nodes)
    ++counts[node.domain.empty() ? node.op : node.domain + "." + node.op];
  return counts;
}

// As text, the most frequent first.
std::string text_of(const std::map<std::string, int64_t>& counts) {
  std::vector<std::pair<std::string, int64_t>> sorted(counts.begin(), counts.end());
  std::ranges::stable_sort(sorted, std::greater(), [](const auto& entry) { return entry.second; });
  std::string text;
  for (const auto& [op, count] : sorted) append_item(text, fmt::format("{} {}", count, op));
  return text;
}

using Roles = std::map<std::string, const onnx::InitializerRole*>;  // by name

Roles roles_by_name(const OnnxTraining& training) {
  Roles roles;
  for (const onnx::InitializerRole& role : training.roles.initializers) roles[role.name] = &role;
  return roles;
}

bool is_trained(const onnx::InitializerRole& role) {
  using Kind = onnx::InitializerRole::Kind;
  return role.kind == Kind::kLearns || role.kind == Kind::kStatistic;
}

std::string text_of(const onnx::InitializerRole& role) {
  return fmt::format(
      ", {}{}",
      onnx::name_of(role.kind),
      role.made_of.empty() ? "" : fmt::format(" for {}", fmt::join(role.made_of, ", ")));
}

// Elements of the initializers that training does not change.
int64_t constants_of(const File& file, const OnnxTraining& training) {
  const Roles roles = roles_by_name(training);
  int64_t constants = 0;
  for (const Initializer& initializer : file.initializers) {
    const auto role = roles.find(initializer.name);
    if (role == roles.end() || !is_trained(*role->second)) constants += initializer.array.size();
  }
  return constants;
}

std::string large(double number) {
  for (const auto& [unit, size] : {std::pair("T", 1e12), {"G", 1e9}, {"M", 1e6}, {"k", 1e3}})
    if (number >= size) return fmt::format("{:.3g} {}", number / size, unit);
  return fmt::format("{:.0f} ", number);
}

void print(const OnnxTraining& training, int64_t constants) {
  for (const std::string& refusal : training.refusals)
    print_line("cannot be trained as it is: " + refusal);
  if (!training.refusals.empty()) return;
  print_line(
      fmt::format("trains on {}{}: {} parameters learn, {} are running statistics, {} are constant",
                  training.sample,
                  training.conditions.empty() ? "" : ", on the condition below",
                  training.parameters,
                  training.statistics,
                  constants));
  for (const std::string& condition : training.conditions) print_line("condition: " + condition);
  for (const std::string& line : onnx::lines_of(training.roles)) print_line(line);
  print_line("as " + text_of(training.ops));
  if (!training.generic.empty()) print_line("and, node by node, as " + text_of(training.generic));
  print_line(large(static_cast<double>(training.flops)) + "FLOPs in the forward pass of a sample");
}

void print(const File& file, const OnnxTraining& training, bool tensors) {
  print_line(fmt::format("ONNX, opset {}, version {} of the format, written by {}",
                         file.opset,
                         file.ir_version,
                         file.producer.empty() ? "an unknown program" : file.producer));
  for (const int number : file.inputs) {
    const FileValue& input = file.values[static_cast<size_t>(number)];
    const std::vector<std::string> open = open_axes(input);
    print_line(fmt::format("input {:<24} {}{}",
                           input.name,
                           text_of(input),
                           open.empty() ? "" : fmt::format("; open: {}", fmt::join(open, ", "))));
  }
  for (const int number : file.outputs) {
    const FileValue& output = file.values[static_cast<size_t>(number)];
    print_line(fmt::format("output {:<23} {}", output.name, text_of(output)));
  }
  const Totals totals = totals_of(file);
  const size_t count = file.initializers.size();
  print_line(fmt::format(
      "{} parameters and constants in {} initializer{}, {} bytes{}",
      totals.elements,
      count,
      plural(count),
      totals.bytes,
      totals.external > 0
          ? fmt::format("; {} of the initializers are in external files", totals.external)
          : ""));
  const size_t nodes = file.nodes.size();
  print_line(fmt::format(
      "{} node{}{}{}", nodes, plural(nodes), nodes == 0 ? "" : ": ", text_of(count_ops(file))));
  print(training, constants_of(file, training));
  for (const std::string& warning : onnx::warnings_of(training.roles))
    print_line("warning: " + warning);
  if (!tensors) return;
  const Roles roles = roles_by_name(training);
  for (const Initializer& initializer : file.initializers) {
    const auto role = roles.find(initializer.name);
    print_line(fmt::format("  {:<43} {} {}{}",
                           initializer.name,
                           onnx::name_of(initializer.array.type),
                           onnx::to_string(initializer.array.extents),
                           role == roles.end() ? "" : text_of(*role->second)));
  }
}

Json json_of(const FileValue& value, bool input) {
  Json json;
  json["name"] = value.name;
  json["type"] = type_of(value);
  json["extents"] = extents_of(value);
  if (input) json["open"] = open_axes(value);
  return json;
}

Json json_of(const OnnxTraining& training, int64_t constants) {
  Json json;
  json["refusal"] = fmt::format("{}", fmt::join(training.refusals, "; "));
  json["refusals"] = training.refusals;
  json["conditions"] = training.conditions;
  json["only_batch"] = training.only_batch;
  if (!training.refusals.empty()) return json;
  json["sample"] = training.sample;
  json["parameters"] = training.parameters;
  json["statistics"] = training.statistics;
  json["constants"] = constants;
  json["forward_flops"] = training.flops;
  json["ops"] = Json::object();
  for (const auto& [op, count] : training.ops) json["ops"][op] = count;
  json["generic_ops"] = Json::object();
  for (const auto& [op, count] : training.generic) json["generic_ops"][op] = count;
  json["declared"] = training.roles.declared;
  json["tensors"] = Json::object();
  json["held"] = Json::object();
  json["chosen_by"] = Json::object();
  json["made_of"] = Json::object();
  for (const onnx::InitializerRole& role : training.roles.initializers) {
    json[is_trained(role) ? "tensors" : "held"][role.name] = onnx::name_of(role.kind);
    json["chosen_by"][role.name] = onnx::name_of(role.source);
    if (!role.made_of.empty()) json["made_of"][role.name] = role.made_of;
  }
  return json;
}

Json json_of(const File& file, const OnnxTraining& training) {
  Json json;
  json["file"] = file.path;
  json["opset"] = file.opset;
  json["ir_version"] = file.ir_version;
  json["producer"] = file.producer;
  json["inputs"] = Json::array();
  for (const int number : file.inputs)
    json["inputs"].push_back(json_of(file.values[static_cast<size_t>(number)], true));
  json["outputs"] = Json::array();
  for (const int number : file.outputs)
    json["outputs"].push_back(json_of(file.values[static_cast<size_t>(number)], false));
  const Totals totals = totals_of(file);
  json["initializers"] = static_cast<int64_t>(file.initializers.size());
  json["parameters"] = totals.elements;
  json["bytes"] = static_cast<int64_t>(totals.bytes);
  json["nodes"] = Json::object();
  for (const auto& [op, count] : count_ops(file)) json["nodes"][op] = count;
  json["folded_norms"] = Json::array();
  for (const onnx::FoldedNorm& norm : file.folded_norms)
    json["folded_norms"].push_back(Json::object({{"norm", norm.norm}, {"layer", norm.layer}}));
  json["training"] = json_of(training, constants_of(file, training));
  return json;
}

// What a config must have besides the model.
constexpr const char* kNoConfig = "data { synthetic {} } train { steps: 1 } optimizer { sgd {} }";

OnnxConfig onnx_of(const RunConfig& config, const std::string& path) {
  if (const auto* onnx = std::get_if<OnnxConfig>(&config.model)) return *onnx;
  throw ConfigError(
      "{}: its model is {}; inspect shows one that is onnx", path, config::name_of(config.model));
}

}  // namespace

bool is_onnx_path(const std::string& path) { return has_suffix(path, ".onnx"); }

OnnxConfig onnx_config_of(const std::string& path, const std::vector<std::string>& overrides) {
  if (is_onnx_path(path)) {
    std::vector<std::string> all = {"model.onnx.file=" + path};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return onnx_of(config::parse_config(kNoConfig, path, all), path);
  }
  return onnx_of(config::load_config(path, overrides, huggingface::find_model), path);
}

void show_onnx(const OnnxConfig& config, bool tensors, const std::string& json) {
  const File file = onnx::read_file(config.file);
  fmt::print("{}\n", escape_controls(config.file));
  OnnxTraining training = training_of_onnx(config);
  training.roles.folded_norms = file.folded_norms;  // also if it cannot be trained
  print(file, training, tensors);
  write_json(json, json_of(file, training));
  const size_t refusals = training.refusals.size();
  if (refusals > 0)
    throw ConfigError("{}: cannot be trained as it is, for {} reason{} that inspect has printed",
                      escape_controls(config.file),
                      refusals,
                      plural(refusals));
}

}  // namespace lockstep::launcher
