#include "models/onnx/bind/roles.h"

#include <fmt/format.h>

#include <map>

#include "models/onnx/bind/opened_file.h"
#include "runtime/base/text.h"

namespace lockstep::onnx {
namespace {

using Kind = InitializerRole::Kind;

// A list that is shortened if it is long: "a, b, c and 3 more".
std::string some_of(const std::vector<std::string>& names) {
  return escape_controls(named_first(names.size(), 8, [&](size_t i) { return names[i]; }));
}

// The warning about norms that the exporter folded.
std::string warning_of_folded_norms(const std::vector<FoldedNorm>& norms) {
  const FoldedNorm& first = norms.front();
  return escape_controls(fmt::format(
      "the exporter has folded {} into the preceding layers, such as {}{}; the network is trained "
      "without them. To train with them, export with torch.onnx.export(..., dynamo=True, "
      "optimize=False)",
      counted(norms.size(), "batch norm"),
      first.layer,
      first.norm.empty() ? "" : fmt::format(", which includes {}", first.norm)));
}

}  // namespace

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kLearns: return "learns";
    case Kind::kStatistic: return "statistic";
    case Kind::kConstant: return "constant";
    case Kind::kNoGradient: break;
  }
  return "no gradient";
}

const char* name_of(Source source) {
  switch (source) {
    case Source::kRule: return "rule";
    case Source::kFile: return "file";
    case Source::kConfig: break;
  }
  return "config";
}

FileRoles roles_of(const OnnxConfig& config, const graph::Graph& graph) {
  std::map<std::string, bool> parameters;  // by name: whether it is a statistic
  for (const TensorId id : graph.parameters)
    parameters[graph[id].name] = graph[id].running_momentum > 0;
  const auto opened = open_file(config);
  const File& file = opened->file;
  FileRoles roles{
      .declares = file.declares,
      .declared = file.declares && config.parameters == OnnxConfig::Parameters::kDeclared,
      .folded_norms = file.folded_norms,
      .dropped_parameters = file.dropped_parameters};
  const auto add = [&](size_t number, bool constant_node) {
    const FileValue& value = file.values[number];
    const bool learns = opened->classes.parameter[number];
    const auto found = parameters.find(value.name);
    const bool is_parameter = found != parameters.end() && !value.of_function;
    if (constant_node && !learns && !is_parameter) return;
    const Kind kind = is_parameter ? (found->second ? Kind::kStatistic : Kind::kLearns)
                      : learns     ? Kind::kNoGradient
                                   : Kind::kConstant;
    roles.initializers.push_back(
        {value.name,
         kind,
         opened->classes.source[number],
         is_floating(value.type),
         learns && roles.declared ? value.made_of : std::vector<std::string>{}});
  };
  for (size_t number = 0; number < file.values.size(); ++number)
    if (file.values[number].initializer >= 0) add(number, false);
  for (size_t number = 0; number < file.values.size(); ++number)
    if (file.values[number].constant) add(number, true);
  return roles;
}

std::vector<std::string> lines_of(const FileRoles& roles) {
  std::map<Kind, std::vector<std::string>> names;
  for (const InitializerRole& role : roles.initializers)
    if (role.numbers) names[role.kind].push_back(role.name);
  std::vector<std::string> lines;
  const auto add = [&](Kind kind, const char* one, const char* several) {
    const std::vector<std::string>& of = names[kind];
    if (!of.empty())
      lines.push_back(fmt::format("{} {}: {}",
                                  counted(of.size(), "initializer"),
                                  of.size() == 1 ? one : several,
                                  some_of(of)));
  };
  if (roles.declared)
    add(Kind::kLearns, "learns, as the file declares", "learn, as the file declares");
  else if (roles.declares)
    add(Kind::kLearns,
        "learns by its use in the graph; the file's declaration is ignored "
        "(model.onnx.parameters: GUESSED)",
        "learn by their use in the graph; the file's declarations are ignored "
        "(model.onnx.parameters: GUESSED)");
  else
    add(Kind::kLearns,
        "learns by its use in the graph, because the file does not declare its parameters",
        "learn by their use in the graph, because the file does not declare its parameters");
  add(Kind::kConstant, "is constant", "are constant");
  add(Kind::kNoGradient,
      "is a parameter that no gradient reaches, and does not learn",
      "are parameters that no gradient reaches, and do not learn");
  return lines;
}

std::vector<std::string> warnings_of(const FileRoles& roles) {
  std::vector<std::string> warnings;
  if (!roles.folded_norms.empty()) warnings.push_back(warning_of_folded_norms(roles.folded_norms));
  std::vector<std::string> replaced;
  for (const InitializerRole& role : roles.initializers)
    if (role.kind == Kind::kLearns && !role.made_of.empty())
      replaced.push_back(fmt::format("{} ({})", role.name, fmt::join(role.made_of, ", ")));
  if (!replaced.empty())
    warnings.push_back(fmt::format(
        "the exporter has computed {} from parameters, and they learn instead of the parameters: "
        "{}; unless they are only the parameters' elements in another order, the network learns "
        "differently from the module. To train the parameters, export with torch.onnx.export(..., "
        "dynamo=True, optimize=False)",
        counted(replaced.size(), "initializer"),
        some_of(replaced)));
  if (const auto& dropped = roles.dropped_parameters; !dropped.empty())
    warnings.push_back(fmt::format(
        "the exporter has dropped {} of the module, and the network is trained without: {}. "
        "Exporters drop biases that are 0 at first and parameters that equal others. To train "
        "them, export with torch.onnx.export(..., dynamo=True, optimize=False)",
        counted(dropped.size(), "parameter"),
        some_of(dropped)));
  return warnings;
}

}  // namespace lockstep::onnx
