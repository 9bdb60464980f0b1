#include "models/onnx/read/functions.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "models/onnx/read/declared.h"
#include "models/onnx/schema/onnx.pb.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::onnx {
namespace {

// Limits for expanded functions: functions that call each other could expand a small file without
// bound.
constexpr size_t kMaxNodes = 300'000;
constexpr size_t kMaxExpandedBytes = size_t{1} << 30;
constexpr size_t kMaxCallDepth = 64;

template <typename Imports>
void import_opsets(const Imports& imports, Opsets& opsets) {
  for (const schema::OperatorSetIdProto& opset : imports)
    opsets[domain_of(opset.domain())] = opset.version();
}

// The value of a Constant node; none if it is sparse.
std::optional<Array> constant_of(const Node& node) {
  if (node.attributes.size() != 1 || !node.unsupported_attributes.empty()) return std::nullopt;
  const auto& [name, value] = *node.attributes.begin();
  if (name == "value") return std::get<Array>(value);
  if (name == "value_float")
    return array_of(ElementType::kFloat, {}, {static_cast<double>(std::get<float>(value))});
  if (name == "value_int") return array_of_int64({}, {std::get<int64_t>(value)});
  if (name == "value_string") return Array{ElementType::kString, {}, nullptr};
  if (name == "value_ints") {
    const auto& list = std::get<std::vector<int64_t>>(value);
    return array_of_int64({static_cast<int64_t>(list.size())}, list);
  }
  if (name == "value_floats") {
    const auto& list = std::get<std::vector<float>>(value);
    return array_of(ElementType::kFloat,
                    {static_cast<int64_t>(list.size())},
                    std::vector<double>(list.begin(), list.end()));
  }
  if (name == "value_strings") {
    const auto& list = std::get<std::vector<std::string>>(value);
    return Array{ElementType::kString, {static_cast<int64_t>(list.size())}, nullptr};
  }
  return std::nullopt;
}

std::vector<OpenExtent> fixed(const Extents& extents) {
  std::vector<OpenExtent> result;
  for (const int64_t extent : extents) result.push_back({extent, ""});
  return result;
}

}  // namespace

std::string domain_of(const std::string& written) { return written == "ai.onnx" ? "" : written; }

void require_opset(int64_t version, const std::string& path, const std::string& what) {
  if (version < 9 || version > 23)
    throw ConfigError("{}: {} has opset {} of ONNX; must be 9 to 23", path, what, version);
}

NodeReader::NodeReader(const schema::ModelProto& model,
                       const Opsets& opsets,
                       TensorReader& tensors,
                       File& file)
    : tensors_(tensors), file_(file) {
  graph_.opsets = opsets;
  for (const schema::FunctionProto& function : model.functions()) {
    const std::tuple key{domain_of(function.domain()), function.name(), function.overload()};
    if (!functions_.emplace(key, &function).second)
      throw ConfigError("{}: two functions are named {}; names must be unique",
                        file.path,
                        quote_name(function.domain() + "." + function.name()));
  }
}

void NodeReader::charge(size_t bytes) {
  expanded_bytes_ += bytes;
  if (expanded_bytes_ > kMaxExpandedBytes)
    throw ConfigError("{}: its functions take more than 1 GiB once their calls are expanded",
                      file_.path);
}

int NodeReader::make_value(const Surroundings& around, const std::string& name) {
  FileValue made;
  made.of_function = !around.prefix.empty();
  made.name = name;
  if (made.of_function) {
    const std::string stem = around.prefix + "/" + name;
    made.name = stem;
    for (int copy = 2; names_.count(made.name) > 0; ++copy)
      made.name = fmt::format("{}#{}", stem, copy);
    charge(made.name.size());
  }
  names_.insert(made.name);
  file_.values.push_back(std::move(made));
  return static_cast<int>(file_.values.size()) - 1;
}

int NodeReader::value(Surroundings& around, const std::string& name) {
  if (name.empty()) return -1;
  const auto found = around.values.find(name);
  if (found != around.values.end()) return found->second;
  return around.values[name] = make_value(around, name);
}

void NodeReader::give(int value, const std::string& what) {
  if (value < 0) return;
  const auto [first, only] = sources_.emplace(value, what);
  if (!only)
    throw ConfigError("{}: value {} is defined by {} and by {}; must have one source",
                      file_.path,
                      quote_name(file_.values[static_cast<size_t>(value)].name),
                      first->second,
                      what);
}

void NodeReader::read(const schema::GraphProto& graph) {
  // Define the graph's names first: generated names of values in functions must differ from them.
  for (const schema::NodeProto& node : graph.node())
    for (const std::string& output : node.output()) value(output);
  for (const schema::NodeProto& node : graph.node()) read_node(graph_, node);
}

Node NodeReader::describe(const Surroundings& around, const schema::NodeProto& proto) const {
  Node node;
  node.op = proto.op_type();
  node.domain = domain_of(proto.domain());
  node.name = around.prefix.empty() ? proto.name() : around.prefix + "/" + proto.name();
  node.scope = scope_of(proto);
  if (node.scope.empty()) node.scope = around.scope;
  node.detached = is_detach(proto);
  const auto opset = around.opsets.find(node.domain);
  if (opset != around.opsets.end()) node.opset = opset->second;
  return node;
}

const schema::FunctionProto* NodeReader::function_of(const schema::NodeProto& node) const {
  const auto found = functions_.find({domain_of(node.domain()), node.op_type(), node.overload()});
  return found == functions_.end() ? nullptr : found->second;
}

void NodeReader::read_node(Surroundings& around, const schema::NodeProto& proto) {
  if (++read_nodes_ > kMaxNodes)
    throw ConfigError("{}: it has more than {} nodes", file_.path, kMaxNodes);
  Node node = describe(around, proto);
  const std::string what = node.description();
  if (!around.prefix.empty()) {
    charge(2 * what.size());
    for (const schema::AttributeProto& attribute : proto.attribute())
      if (!attribute.has_t()) charge(2 * attribute.ByteSizeLong());
  }
  const schema::FunctionProto* function = function_of(proto);
  if (proto.op_type().empty())
    throw ConfigError("{}: {}: has no op; every node must have one", file_.path, what);
  if (function == nullptr && !node.domain.empty())
    throw ConfigError(
        "{}: {}: its domain is {}; must be ONNX's standard domain, or a function of the file",
        file_.path,
        what,
        quote_name(node.domain));
  if (function == nullptr && node.opset == 0)
    throw ConfigError(
        "{}: {}: the file imports no opset of ONNX; must be 9 to 23", file_.path, what);
  Attributes attributes = read_attributes(proto, around.call, tensors_, file_.path, what);
  node.attributes = std::move(attributes.known);
  node.unsupported_attributes = std::move(attributes.unsupported);
  for (const std::string& input : proto.input()) node.inputs.push_back(value(around, input));
  for (const std::string& output : proto.output()) node.outputs.push_back(value(around, output));
  if (function != nullptr) return expand(around, proto, node);
  if (has_folded_norm(proto)) file_.folded_norms.push_back({node.scope, what});
  for (const int output : node.outputs) give(output, what);
  if (!take_constant(node)) file_.nodes.push_back(std::move(node));
}

bool NodeReader::take_constant(const Node& node) {
  if (node.op != "Constant" || !node.domain.empty() || node.outputs.size() != 1 ||
      node.output(0) < 0)
    return false;
  std::optional<Array> array;
  try {
    array = constant_of(node);
  } catch (const std::bad_variant_access&) {
    throw ConfigError("{}: {}: its value is of another type than attribute {} must have",
                      file_.path,
                      node.description(),
                      node.attributes.begin()->first);
  }
  if (!array) return false;
  FileValue& value = file_.values[static_cast<size_t>(node.output(0))];
  value.typed = value.has_extents = true;
  value.type = array->type;
  value.extents = fixed(array->extents);
  value.constant = std::move(array);
  return true;
}

NodeReader::Surroundings NodeReader::inside(Surroundings& around,
                                            const schema::FunctionProto& function,
                                            const schema::NodeProto& proto,
                                            const Node& call) {
  Surroundings inner;
  inner.opsets = graph_.opsets;
  import_opsets(function.opset_import(), inner.opsets);
  const std::string what = fmt::format("function {}", quote_name(function.name()));
  const auto standard = inner.opsets.find("");
  if (standard != inner.opsets.end()) require_opset(standard->second, file_.path, what);
  // A call without a name is named after its first output.
  std::string name =
      proto.name().empty() && proto.output_size() > 0 ? proto.output(0) : proto.name();
  if (name.empty()) name = function.name();
  inner.prefix = around.prefix.empty() ? name : around.prefix + "/" + name;
  if (inner.prefix.empty()) inner.prefix = "/";
  inner.scope = call.scope;
  inner.calls = around.calls;
  inner.calls.push_back(&function);
  for (int i = 0; i < function.input_size(); ++i)
    if (!inner.values.emplace(function.input(i), call.input(static_cast<size_t>(i))).second)
      throw ConfigError("{}: {}: two inputs are named {}; names must be unique",
                        file_.path,
                        what,
                        quote_name(function.input(i)));
  return inner;
}

void NodeReader::expand(Surroundings& around, const schema::NodeProto& proto, const Node& call) {
  const schema::FunctionProto& function = *function_of(proto);
  const std::string what = call.description();
  if (std::ranges::find(around.calls, &function) != around.calls.end())
    throw ConfigError(
        "{}: {}: the function calls itself; recursion is not allowed", file_.path, what);
  if (around.calls.size() >= kMaxCallDepth)
    throw ConfigError(
        "{}: {}: calls of functions are nested more than {} deep", file_.path, what, kMaxCallDepth);
  if (proto.input_size() > function.input_size() || proto.output_size() > function.output_size())
    throw ConfigError("{}: {}: has {} inputs and {} outputs; the function has {} and {}",
                      file_.path,
                      what,
                      proto.input_size(),
                      proto.output_size(),
                      function.input_size(),
                      function.output_size());
  Attributes attributes{call.attributes, call.unsupported_attributes};
  for (const schema::AttributeProto& attribute : function.attribute_proto()) {
    const auto& unsupported = attributes.unsupported;
    const bool given = attributes.known.count(attribute.name()) > 0 ||
                       std::ranges::find(unsupported, attribute.name()) != unsupported.end();
    if (!given) add_attribute(attributes, attribute, tensors_, file_.path, what);
  }
  Surroundings inner = inside(around, function, proto, call);
  inner.call = &attributes;
  // If an output of the function is also an input or another output, the call's output is a copy of
  // it.
  std::vector<std::pair<int, std::string>> copies;
  for (int i = 0; i < proto.output_size(); ++i) {
    const int output = call.output(static_cast<size_t>(i));
    if (output >= 0 && !inner.values.emplace(function.output(i), output).second)
      copies.emplace_back(output, function.output(i));
  }
  for (const schema::NodeProto& node : function.node()) read_node(inner, node);
  for (const auto& [output, name] : copies) {
    Node copy = call;
    copy.op = "Identity";
    copy.domain = "";
    copy.opset = file_.opset;
    copy.attributes.clear();
    copy.unsupported_attributes.clear();
    copy.inputs = {value(inner, name)};
    copy.outputs = {output};
    give(output, what);
    file_.nodes.push_back(std::move(copy));
  }
}

}  // namespace lockstep::onnx
