#pragma once
// The network that an ONNX file describes, at two stages: as it stands in the file (File), and with
// every extent known (Network), which is what is trained. Plain data.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/onnx/array.h"

namespace lockstep::onnx {

using Attribute = std::variant<int64_t,
                               float,
                               std::string,
                               std::vector<int64_t>,
                               std::vector<float>,
                               std::vector<std::string>,
                               Array>;

// A node. Inputs and outputs are numbers of values, -1 where absent.
struct Node {
  std::string op;      // "Conv"
  std::string domain;  // "" is ONNX's own
  int64_t opset = 0;   // of the domain, as the file imports it
  std::string name;    // as in the file; may be empty
  std::string scope;   // where it stood in PyTorch's modules, as the exporter tells; may be empty
  std::vector<int> inputs;
  std::vector<int> outputs;
  std::map<std::string, Attribute> attributes;
  std::vector<std::string> unsupported_attributes = {};  // subgraphs and the like, by name
  bool detached = false;  // PyTorch's detach(): no gradient comes back through it

  bool has(const std::string& attribute) const { return attributes.count(attribute) > 0; }
  // The attribute, or `otherwise` where there is none. Throws ConfigError where it is of another kind.
  int64_t integer(const std::string& attribute, int64_t otherwise) const;
  float number(const std::string& attribute, float otherwise) const;
  std::string text(const std::string& attribute, const std::string& otherwise) const;
  std::vector<int64_t> integers(const std::string& attribute,
                                std::vector<int64_t> otherwise = {}) const;
  std::vector<float> numbers(const std::string& attribute, std::vector<float> otherwise = {}) const;

  // For messages: `Conv "conv1" (opset 17, in layer1.0.conv1)`.
  std::string description() const;
  int input(size_t place) const { return place < inputs.size() ? inputs[place] : -1; }
  int output(size_t place) const { return place < outputs.size() ? outputs[place] : -1; }
};

// An extent that the file leaves open has a name there ("batch") or none.
struct OpenExtent {
  int64_t extent = -1;    // below 0: open
  std::string name = {};  // of an open one; may be empty
};

// What the file itself says of an initializer, as torch.onnx.export(dynamo=True) writes it.
enum class Declared : uint8_t {
  kNothing,
  kParameter,
  kConstant,  // a buffer, or a tensor of the module's code
};

struct FileValue {
  std::string name;
  bool typed = false;  // whether the file says its type
  ElementType type = ElementType::kFloat;
  bool has_extents = false;
  std::vector<OpenExtent> extents;
  int initializer = -1;  // number in File::initializers, or -1
  // Of the output of a Constant node, which is no node of the File. Sparse ones stay nodes.
  std::optional<Array> constant = {};
  // Within a function of the file: it has this name nowhere in the file, and may stand for several.
  bool of_function = false;
  Declared declared = Declared::kNothing;
  std::vector<std::string> made_of = {};  // parameters of which the exporter has computed it
};

struct Initializer {
  std::string name;
  Array array;
  bool external = false;  // whether its elements lie beside the file
};

// A batch norm that the file had before its exporter multiplied the weights of the layer before by it.
struct FoldedNorm {
  std::string norm;   // the module's name; may be empty
  std::string layer;  // Node::description()
};

// A file as it is, checked: names are resolved, functions replaced by their nodes, nodes in an order
// in which everything is computed before it is used.
struct File {
  std::string path;
  int64_t ir_version = 0;
  int64_t opset = 0;  // of ONNX's own domain
  std::string producer;
  std::vector<FileValue> values;
  std::vector<Initializer> initializers;
  std::vector<Node> nodes;
  std::vector<int> inputs;  // without those that an initializer fills
  std::vector<int> outputs;
  bool declares = false;                     // says which initializers are parameters
  bool optimized = false;                    // the exporter has computed some of its values
  std::vector<std::string> lost_parameters;  // that it lists, but does not have any more
  // Those of them that nodes read before the exporter left them out: tied and unused ones are not among them.
  std::vector<std::string> dropped_parameters;
  std::vector<FoldedNorm> folded_norms;
};

// Reads the file and its external data, which are mapped. Throws ConfigError in the form
// `PATH: what is wrong; what is allowed`: what is no ONNX file, an opset of another age than 9 to 23,
// external data outside the file's folder or shorter than claimed, values without a source, cycles,
// types and domains that are not known. Nodes with ops that are not known are no error here. Arrays keep
// what they need of the file; where external elements lie at a multiple of their size they are not copied.
File read_file(const std::string& path);

enum class ValueKind : uint8_t {
  kInput,      // of the network
  kParameter,  // an initializer or constant that may learn
  kConstant,   // known before the start
  kComputed,
};

struct Value {
  std::string name;
  ElementType type = ElementType::kFloat;
  Extents extents;
  ValueKind kind = ValueKind::kComputed;
  Array array = {};  // of parameters and constants
  int initializer =
      -1;  // of parameters: number in File::initializers; -1 where it was a Constant node
};

// Of one lane's batch: everything static. Nodes that only constants reach are folded away, and so is
// what no output needs.
struct Network {
  std::vector<Value> values;  // by the numbers of the file's values
  std::vector<Node> nodes;
  std::vector<int> inputs;
  std::vector<int> outputs;
};

struct BindOptions {
  int64_t batch =
      1;  // samples: of the first axis of every input that is open or named `batch_axis`
  std::string batch_axis = {};  // the name of the batch's axis; "" : the first axis of the inputs
  std::map<std::string, int64_t> axes =
      {};  // other open axes by name, or by "INPUT.AXIS" where they have none
  std::map<std::string, Extents> inputs = {};  // the whole extents of an input, which go before all
  // Batch norms take the statistics of the file, and are computed by parts.
  bool running_norms = false;
  // Of all values together that are computed before the start: they are held until the last node is
  // bound.
  int64_t most_folded_bytes = int64_t{4} << 30;
  bool all_constant = false;  // no initializer learns: everything folds that inputs do not reach
  std::map<std::string, Array> known = {};  // inputs that are constants, of their own extents
  std::vector<size_t> outputs = {};         // places of those that are wanted; none: all are
};

// Whose word it is that an initializer learns, or does not.
enum class Source : uint8_t {
  kRule,    // its place in the network: a guess
  kFile,    // Declared
  kConfig,  // model.onnx.trainable or constant
};

// What the file's own values are: which initializers may learn. By number of a value of the file.
struct Classes {
  std::vector<bool>
      parameter;  // by value: an initializer (or Constant node's output) in the place of a parameter
  std::vector<Source> source = {};
  // The nodes (their places in File::nodes, ascending) that have the parameter as bias, gain, or scale or
  // bias of a normalization. Parameters without such nodes are not there.
  std::map<int, std::vector<int>> vector_nodes = {};
};

// A parameter that is bias, gain, or scale or bias of a normalization of several nodes: an exporter that merges
// initializers with equal elements ties what were parameters of their own.
struct MergedInitializer {
  std::string name;
  std::vector<std::string> nodes;  // Node::description() of each
};

// What goes before the rule of classify().
struct Selection {
  bool declared = true;  // what the file says
  std::function<bool(const std::string&)> trainable =
      nullptr;  // and before that names of the config
  std::function<bool(const std::string&)> constant = nullptr;
};

// If the file and the selection say nothing: floating-point initializers that stand in the place of a
// parameter of some node whose other inputs depend on the network's (weights, biases, gains, tables; Constant
// nodes in the place of weights and tables), directly or through nodes that only move their elements, and to
// which a gradient comes back. Not statistics, masks, nor operands by whose names an exporter calls what it
// computed itself. Running statistics of batch norms are never parameters.
Classes classify(const File& file, const Selection& selection = {});
// Names of initializers that hold numbers, and of Constant nodes that do, in the file's order. `trainable`: without
// Constant nodes that an exporter has written for numbers of the arithmetic, which no pattern makes learn.
std::vector<std::string> names_of_numbers(const File& file, bool trainable);
// In the order of values. Parameters of modules that a model calls several times are among them.
std::vector<MergedInitializer> merged_initializers(const File& file, const Classes& classes);

// Gives every value its type and extents, computes what is known, and drops what nothing needs. Throws
// ConfigError: unbound axes by name and how to bind them, ops and forms of them that are not known, with
// Node::description(); extents that depend on data.
Network bind(const File& file, const Classes& classes, const BindOptions& options);

// Why it cannot be bound: the errors of all nodes of known ops, without those behind another such node.
std::vector<std::string> bind_problems(const File& file,
                                       const Classes& classes,
                                       const BindOptions& options);

}  // namespace lockstep::onnx
