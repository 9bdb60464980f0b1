#include "models/onnx/read/declared.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>

#include "models/onnx/schema/onnx.pb.h"
#include "runtime/base/text.h"

namespace lockstep::onnx {
namespace {

// Parses a list of strings as Python prints it: ['', 'layer1', 'layer1.0', 'conv2d'].
std::vector<std::string> texts_of(const std::string& list) {
  std::vector<std::string> texts;
  size_t at = 0;
  while ((at = list.find_first_of("'\"", at)) != std::string::npos) {
    const size_t end = list.find(list[at], at + 1);
    if (end == std::string::npos) break;
    texts.push_back(list.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return texts;
}

constexpr const char* kSignature = "pkg.torch.export.ExportedProgram.graph_signature";
constexpr const char* kFoldedFrom = "pkg.onnxscript.optimizer.folded_from";
constexpr const char* kRule = "pkg.onnxscript.rewriter.rule_name";
constexpr const char* kHierarchy = "pkg.torch.onnx.class_hierarchy";
constexpr const char* kFxNode = "pkg.torch.onnx.fx_node";

template <typename Message>
std::string text_of(const Message& message, std::string_view key) {
  for (const schema::StringStringEntryProto& entry : message.metadata_props())
    if (entry.key() == key) return entry.value();
  return "";
}

Declared declared_by(std::string_view kind) {
  if (kind.starts_with(kDeclaredParameter)) return Declared::kParameter;
  if (kind.starts_with(kDeclaredConstant) || kind.starts_with("CONSTANT_TENSOR"))
    return Declared::kConstant;
  return Declared::kNothing;
}

using Kinds = std::map<std::string, Declared>;  // by name

// Parses lines such as "p_head_weight: PARAMETER target='head.weight'", which precede those of
// outputs. `kinds` maps "head.weight" to its kind, and `names` to the name that nodes use,
// "p_head_weight".
void read_signature(const std::string& text,
                    Kinds& kinds,
                    std::map<std::string, std::string>& names) {
  constexpr std::string_view kTarget = " target='";
  const std::string_view inputs = std::string_view(text).substr(0, text.find("# outputs"));
  for (size_t begin = 0; begin < inputs.size();) {
    const size_t end = std::min(inputs.find('\n', begin), inputs.size());
    const std::string_view line = inputs.substr(begin, end - begin);
    begin = end + 1;
    const size_t colon = line.find(": "), target = line.find(kTarget);
    if (colon == std::string_view::npos || target == std::string_view::npos) continue;
    const Declared kind = declared_by(line.substr(colon + 2));
    const std::string_view rest = line.substr(target + kTarget.size());
    if (kind == Declared::kNothing) continue;
    const std::string name(rest.substr(0, rest.find('\'')));
    kinds[name] = kind;
    names[name] = line.substr(0, colon);
  }
}

// The aten op from which PyTorch's exporter made the node.
std::string aten_op(const schema::NodeProto& node) {
  const std::vector<std::string> classes = texts_of(text_of(node, kHierarchy));
  return classes.empty() ? "" : classes.back();
}

// Names that nodes read before the exporter's optimizer ran: "%p_head_weight" in the text of the
// PyTorch node. Nodes into which a batch norm was folded are skipped; FoldedNorm covers them.
std::set<std::string> read_by_nodes(const schema::GraphProto& graph) {
  std::set<std::string> names;
  for (const schema::NodeProto& node : graph.node()) {
    if (has_folded_norm(node)) continue;
    const std::string text = text_of(node, kFxNode);
    for (size_t begin = text.find('%'); begin != std::string::npos; begin = text.find('%', begin)) {
      const size_t end = text.find_first_of(" ,:()[]{}", ++begin);
      names.insert(text.substr(begin, end - begin));
    }
  }
  return names;
}

// 12 for "onnx::Conv_12".
std::optional<int64_t> number_of_conv(const std::string& name) {
  constexpr std::string_view kStem = "onnx::Conv_";
  if (!name.starts_with(kStem)) return std::nullopt;
  return parse_as<int64_t>(std::string_view(name).substr(kStem.size()));
}

// "layer1.0.conv1" for "/layer1/layer1.0/conv1/Conv": a module in a list repeats the list's name.
std::string from_name(const std::string& name) {
  std::string scope;
  std::string last;
  size_t begin = 1;
  for (size_t end; (end = name.find('/', begin)) != std::string::npos; begin = end + 1) {
    const std::string part = name.substr(begin, end - begin);
    const bool repeats = !last.empty() && part.starts_with(last + ".");
    if (repeats) scope.resize(scope.size() - last.size());
    if (!repeats && !scope.empty()) scope += '.';
    scope += part;
    last = part;
  }
  return scope;
}

}  // namespace

void read_declarations(const schema::GraphProto& graph,
                       const std::map<std::string, size_t>& by_name,
                       File& file) {
  Kinds kinds;
  std::map<std::string, std::string> names;
  read_signature(text_of(graph, kSignature), kinds, names);
  const Kinds signature = kinds;
  std::map<std::string, std::vector<std::string>> folded;
  const auto read = [&](const auto& messages) {
    for (const auto& message : messages) {
      const Declared kind = declared_by(text_of(message, kDeclaredKind));
      if (kind != Declared::kNothing) kinds[message.name()] = kind;
      const std::string from = text_of(message, kFoldedFrom);
      if (!from.empty()) folded[message.name()] = texts_of(from);
    }
  };
  read(graph.initializer());
  read(graph.input());
  read(graph.value_info());
  file.declares = !kinds.empty();
  file.optimized = !folded.empty();

  std::set<std::string> kept;  // parameters that are still in the file, or were folded into a value
  for (const auto& [name, number] : by_name) {
    FileValue& value = file.values[number];
    if (value.initializer < 0 && !value.constant) continue;
    if (const auto kind = kinds.find(name); kind != kinds.end()) {
      value.declared = kind->second;
      kept.insert(name);
    } else if (const auto from = folded.find(name); from != folded.end()) {
      value.declared = Declared::kConstant;
      for (const std::string& part : from->second) {
        const auto of = kinds.find(part);
        if (of == kinds.end() || of->second != Declared::kParameter) continue;
        value.declared = Declared::kParameter;
        value.made_of.push_back(part);
        kept.insert(part);
      }
    }
  }
  for (const auto& [name, kind] : signature)
    if (kind == Declared::kParameter && !kept.contains(name)) file.lost_parameters.push_back(name);
  if (file.lost_parameters.empty()) return;
  const std::set<std::string> read_names = read_by_nodes(graph);
  std::ranges::copy_if(file.lost_parameters,
                       std::back_inserter(file.dropped_parameters),
                       [&](const std::string& name) { return read_names.contains(names[name]); });
}

bool is_detach(const schema::NodeProto& node) {
  return node.op_type() == "Identity" && aten_op(node).starts_with("aten.detach");
}

bool has_folded_norm(const schema::NodeProto& node) {
  static const std::set<std::string_view> kLayers = {"Conv", "ConvTranspose", "Gemm", "MatMul"};
  if (!kLayers.contains(node.op_type())) return false;
  return text_of(node, kRule).find("FuseBatchNorm") != std::string::npos ||
         aten_op(node).find("batch_norm") != std::string::npos;
}

// The exporter numbers values in sequence. A convolution with a folded norm has the weight N and
// the bias N + 1, and N + 2 is its output, so that N - 1 and N + 2 are no weights. Weights and
// biases that were multiplied by constants are numbered without such gaps.
void find_folded_norms_by_names(File& file) {
  if (file.declares || !file.producer.starts_with("pytorch")) return;
  std::set<int64_t> numbers;
  for (const Initializer& initializer : file.initializers)
    if (const auto number = number_of_conv(initializer.name)) numbers.insert(*number);
  for (const Node& node : file.nodes) {
    if (node.op != "Conv" || node.input(1) < 0 || node.input(2) < 0) continue;
    const auto weight = number_of_conv(file.values[static_cast<size_t>(node.input(1))].name);
    const auto bias = number_of_conv(file.values[static_cast<size_t>(node.input(2))].name);
    if (weight && bias && *bias == *weight + 1 && !numbers.contains(*weight - 1) &&
        !numbers.contains(*bias + 1))
      file.folded_norms.push_back({"", node.description()});
  }
}

std::string scope_of(const schema::NodeProto& node) {
  const std::vector<std::string> scopes = texts_of(text_of(node, "pkg.torch.onnx.name_scopes"));
  if (scopes.size() > 1) return scopes[scopes.size() - 2];  // the last one is the op's name
  return node.name().starts_with('/') ? from_name(node.name()) : "";
}

}  // namespace lockstep::onnx
