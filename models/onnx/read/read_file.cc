#include <functional>
#include <memory>
#include <queue>
#include <set>
#include <utility>

#include "models/onnx/network.h"
#include "models/onnx/read/declared.h"
#include "models/onnx/read/functions.h"
#include "models/onnx/read/parse_file.h"
#include "models/onnx/read/tensors.h"
#include "models/onnx/schema/onnx.pb.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/text.h"

namespace lockstep::onnx {
namespace {

// For each value, the index of the node that computes it, or -1.
std::vector<int> producers_of(const File& file) {
  std::vector<int> producers(file.values.size(), -1);
  for (size_t node = 0; node < file.nodes.size(); ++node)
    for (const int output : file.nodes[node].outputs)
      if (output >= 0) producers[static_cast<size_t>(output)] = static_cast<int>(node);
  return producers;
}

// Sorts the nodes topologically. If the file's order is topological, it stays. Throws ConfigError
// if the nodes have a cycle.
void sort_nodes(File& file) {
  const std::vector<int> producers = producers_of(file);
  std::vector<std::vector<size_t>> users(file.nodes.size());
  std::vector<size_t> awaited(file.nodes.size(), 0);  // inputs that are not computed yet
  for (size_t node = 0; node < file.nodes.size(); ++node) {
    for (const int input : file.nodes[node].inputs) {
      const int producer = input < 0 ? -1 : producers[static_cast<size_t>(input)];
      if (producer < 0) continue;
      users[static_cast<size_t>(producer)].push_back(node);
      ++awaited[node];
    }
  }
  // Kahn's algorithm. Among the nodes that are ready, the first in the file is taken.
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t node = 0; node < file.nodes.size(); ++node)
    if (awaited[node] == 0) ready.push(node);
  std::vector<Node> sorted;
  sorted.reserve(file.nodes.size());
  while (!ready.empty()) {
    const size_t node = ready.top();
    ready.pop();
    sorted.push_back(std::move(file.nodes[node]));
    for (const size_t user : users[node])
      if (--awaited[user] == 0) ready.push(user);
  }
  for (size_t node = 0; node < file.nodes.size(); ++node)
    if (awaited[node] > 0)
      throw ConfigError(
          "{}: {} is part of a cycle or depends on one; the graph must have no cycles",
          file.path,
          file.nodes[node].description());
  file.nodes = std::move(sorted);
}

// `reason`: why, if the file is not known as one of another format.
[[noreturn]] void refuse(std::span<const std::byte> bytes,
                         const std::string& path,
                         const char* reason) {
  const FileKind kind = file_kind(bytes);
  if (!kind || kind.id == "onnx") throw ConfigError("{}: {}", path, reason);
  const bool of_weights = kind.id == "torch" || kind.id == "pickle" || kind.id == "safetensors" ||
                          kind.id == "gguf" || kind.id == "hdf5";
  if (of_weights)
    throw ConfigError(
        "{}: is {}, not an ONNX file; write one with torch.onnx.export(model, args, FILE, "
        "dynamo=True)",
        path,
        kind.name);
  throw ConfigError("{}: {}", path, is_not(bytes, "an ONNX file"));
}

std::shared_ptr<schema::ModelProto> parse(std::span<const std::byte> bytes,
                                          const std::string& path) {
  if (bytes.size() > kLargestFile)
    throw ConfigError(
        "{}: has {} bytes; an ONNX file must be smaller than 2 GiB, with large tensors as external "
        "data",
        path,
        bytes.size());
  if (bytes.empty()) throw ConfigError("{}: is empty; must be an ONNX file", path);
  auto model = std::make_shared<schema::ModelProto>();
  if (!model->ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size())))
    refuse(bytes, path, "not an ONNX file, or damaged or truncated");
  if (!model->has_ir_version() || model->ir_version() < 1 || !model->has_graph())
    refuse(bytes, path, "not an ONNX file: must have a version of the format and a graph");
  return model;
}

Opsets opsets_of(const schema::ModelProto& model, const std::string& path) {
  Opsets opsets;
  for (const schema::OperatorSetIdProto& opset : model.opset_import()) {
    const std::string domain = domain_of(opset.domain());
    if (domain.empty()) require_opset(opset.version(), path, "the file");
    const auto [known, added] = opsets.emplace(domain, opset.version());
    if (!added && known->second != opset.version())
      throw ConfigError("{}: imports domain {} with opset {} and with opset {}; must be one",
                        path,
                        quote_name(domain),
                        known->second,
                        opset.version());
  }
  return opsets;
}

// Sets type and extents of the value from the file, if it is a tensor of a supported type.
void describe(FileValue& value, const schema::ValueInfoProto& info) {
  if (value.constant || value.initializer >= 0) return;  // known from their elements
  const schema::TypeProto::Tensor& tensor = info.type().tensor_type();
  const std::optional<ElementType> type = element_type_of(tensor.elem_type());
  if (!info.type().has_tensor_type() || !type) return;
  value.typed = true;
  value.type = *type;
  value.has_extents = tensor.has_shape();
  value.extents.clear();
  for (const schema::TensorShapeProto::Dimension& dim : tensor.shape().dim()) {
    const bool open = !dim.has_dim_value() || dim.dim_value() < 0;
    // Exporters write "?" for unnamed axes, which need not have the same extent.
    const std::string name = dim.dim_param() == "?" ? "" : dim.dim_param();
    value.extents.push_back({open ? -1 : dim.dim_value(), name});
  }
}

// Throws ConfigError if the file gives an input or output a type that is not a supported tensor.
void check_type(const schema::ValueInfoProto& info, const std::string& path, const char* what) {
  const schema::TypeProto& type = info.type();
  const char* kind = type.has_sequence_type()        ? "a sequence"
                     : type.has_map_type()           ? "a map"
                     : type.has_optional_type()      ? "an optional value"
                     : type.has_sparse_tensor_type() ? "a sparse tensor"
                                                     : nullptr;
  const std::string name = quote_name(info.name());
  if (kind != nullptr)
    throw ConfigError("{}: {} {} is {}; must be a tensor", path, what, name, kind);
  const int element = type.tensor_type().elem_type();
  if (type.has_tensor_type() && !element_type_of(element))
    throw ConfigError(
        "{}: {} {} has elements of type {}; must be float, double, float16, bfloat16, int8 to "
        "int64, uint8 to uint64, bool or string",
        path,
        what,
        name,
        type_text_of(element));
}

class Reader {
 public:
  Reader(std::shared_ptr<const schema::ModelProto> model, File& file)
      : model_(std::move(model)),
        graph_(model_->graph()),
        file_(file),
        tensors_(file.path, model_),
        nodes_(*model_, opsets_of(*model_, file.path), tensors_, file) {}

  void read() {
    read_initializers();
    read_inputs();
    nodes_.read(graph_);
    read_outputs();
    for (const schema::ValueInfoProto& info : graph_.value_info()) {
      const auto known = by_name_.find(info.name());
      if (known != by_name_.end()) describe(file_.values[known->second], info);
    }
    read_declarations(graph_, by_name_, file_);
    check_sources();
    sort_nodes(file_);
    find_folded_norms_by_names(file_);
  }

 private:
  FileValue& value(int number) { return file_.values[static_cast<size_t>(number)]; }

  void read_initializers() {
    if (graph_.sparse_initializer_size() > 0)
      throw ConfigError("{}: has sparse initializers; all must be dense", file_.path);
    for (const schema::TensorProto& tensor : graph_.initializer()) {
      const std::string what = fmt::format("initializer {}", quote_name(tensor.name()));
      if (tensor.name().empty())
        throw ConfigError("{}: an initializer has no name; each must have one", file_.path);
      Initializer made{tensor.name(),
                       tensors_.read(tensor, what),
                       tensor.data_location() == schema::TensorProto::EXTERNAL};
      const int number = nodes_.value(tensor.name());
      nodes_.give(number, what);
      FileValue& v = value(number);
      v.typed = v.has_extents = true;
      v.type = made.array.type;
      for (const int64_t extent : made.array.extents) v.extents.push_back({extent, ""});
      v.initializer = static_cast<int>(file_.initializers.size());
      file_.initializers.push_back(std::move(made));
    }
  }

  void read_inputs() {
    std::set<std::string> names;
    for (const schema::ValueInfoProto& info : graph_.input()) {
      if (info.name().empty() || !names.insert(info.name()).second)
        throw ConfigError("{}: input name {} is empty or occurs twice; names must be unique",
                          file_.path,
                          quote_name(info.name()));
      const int number = nodes_.value(info.name());
      if (value(number).initializer >= 0) continue;
      check_type(info, file_.path, "input");
      nodes_.give(number, "the inputs");
      describe(value(number), info);
      file_.inputs.push_back(number);
    }
  }

  void read_outputs() {
    for (size_t number = 0; number < file_.values.size(); ++number)
      if (!file_.values[number].of_function) by_name_[file_.values[number].name] = number;
    std::set<std::string> names;
    for (const schema::ValueInfoProto& info : graph_.output()) {
      if (!names.insert(info.name()).second)
        throw ConfigError("{}: two outputs are named {}; names must be unique",
                          file_.path,
                          quote_name(info.name()));
      const auto found = by_name_.find(info.name());
      if (found == by_name_.end() || !nodes_.has_source(static_cast<int>(found->second)))
        throw ConfigError("{}: output {} is not defined by a node, input or initializer",
                          file_.path,
                          quote_name(info.name()));
      check_type(info, file_.path, "output");
      describe(file_.values[found->second], info);
      file_.outputs.push_back(static_cast<int>(found->second));
    }
    if (file_.outputs.empty())
      throw ConfigError("{}: the graph has no output; must have one or more", file_.path);
  }

  void check_sources() {
    for (const Node& node : file_.nodes)
      for (const int input : node.inputs)
        if (input >= 0 && !nodes_.has_source(input))
          throw ConfigError("{}: {}: its input {} is not defined by a node, input or initializer",
                            file_.path,
                            node.description(),
                            quote_name(value(input).name));
  }

  std::shared_ptr<const schema::ModelProto> model_;
  const schema::GraphProto& graph_;
  File& file_;
  TensorReader tensors_;
  NodeReader nodes_;
  std::map<std::string, size_t> by_name_;  // values of the graph
};

}  // namespace

File parse_file(std::span<const std::byte> bytes, const std::string& path) {
  const std::shared_ptr<schema::ModelProto> model = parse(bytes, path);
  File file;
  file.path = path;
  file.ir_version = model->ir_version();
  const Opsets opsets = opsets_of(*model, path);
  const auto standard = opsets.find("");
  if (standard != opsets.end()) file.opset = standard->second;
  file.producer = model->producer_name();
  if (!model->producer_version().empty()) file.producer += " " + model->producer_version();
  Reader(model, file).read();
  return file;
}

File read_file(const std::string& path) {
  try {
    const MappedFile mapped(path, ExitCode::kUsage);
    return parse_file(mapped.bytes(), path);
  } catch (const IoError& error) {
    throw ConfigError("{}", error.what());
  }
}

}  // namespace lockstep::onnx
