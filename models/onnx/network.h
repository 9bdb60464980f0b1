#pragma once
// The network of an ONNX file, as plain data in two stages: as it is in the file (File), and bound,
// with every extent known (Network). The bound network is lowered to a graph and trained.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/onnx/read/array.h"

namespace lockstep::onnx {

using Attribute = std::variant<int64_t,
                               float,
                               std::string,
                               std::vector<int64_t>,
                               std::vector<float>,
                               std::vector<std::string>,
                               Array>;

// A node. Inputs and outputs are numbers of values; -1 if absent.
struct Node {
  std::string op;      // "Conv"
  std::string domain;  // "" is ONNX's standard domain
  int64_t opset = 0;   // of the domain, as the file imports it
  std::string name;    // as in the file; may be empty
  std::string scope;   // PyTorch module that it comes from, if the exporter recorded it; else empty
  std::vector<int> inputs;
  std::vector<int> outputs;
  std::map<std::string, Attribute> attributes;
  std::vector<std::string> unsupported_attributes = {};  // names of subgraphs and the like
  bool detached = false;                                 // PyTorch's detach(): passes no gradient

  bool has(const std::string& attribute) const { return attributes.count(attribute) > 0; }
  // The attribute, or `otherwise` if there is none. Throws ConfigError if it has another type.
  int64_t integer(const std::string& attribute, int64_t otherwise) const;
  float number(const std::string& attribute, float otherwise) const;
  std::string text(const std::string& attribute, const std::string& otherwise) const;
  std::vector<int64_t> integers(const std::string& attribute,
                                std::vector<int64_t> otherwise = {}) const;
  std::vector<float> numbers(const std::string& attribute, std::vector<float> otherwise = {}) const;

  // For messages: `Conv "conv1" (opset 17, in layer1.0.conv1)`.
  std::string description() const;
  int input(size_t index) const { return index < inputs.size() ? inputs[index] : -1; }
  int output(size_t index) const { return index < outputs.size() ? outputs[index] : -1; }
};

// An extent that may be open in the file. An open extent may have a name ("batch").
struct OpenExtent {
  int64_t extent = -1;    // below 0: open
  std::string name = {};  // of an open extent; may be empty
};

// How the file declares an initializer, as torch.onnx.export(dynamo=True) does.
enum class Declared : uint8_t {
  kNothing,
  kParameter,
  kConstant,  // a buffer, or a tensor of the module's code
};

struct FileValue {
  std::string name;
  bool typed = false;  // whether the file has its type
  ElementType type = ElementType::kFloat;
  bool has_extents = false;
  std::vector<OpenExtent> extents;
  int initializer = -1;  // index in File::initializers, or -1
  // The value of a Constant node. Such nodes are not in File::nodes, unless they are sparse.
  std::optional<Array> constant = {};
  // Whether it is a value in an expanded function. Its name is generated and not in the file.
  bool of_function = false;
  Declared declared = Declared::kNothing;
  std::vector<std::string> made_of = {};  // parameters from which the exporter computed it
};

struct Initializer {
  std::string name;
  Array array;
  bool external = false;  // whether its elements are in another file
};

// A batch norm that the exporter folded into the weights of the preceding layer.
struct FoldedNorm {
  std::string norm;   // name of the norm's module; may be empty
  std::string layer;  // Node::description()
};

// A checked file: names are resolved, functions are expanded, and nodes are in topological order.
struct File {
  std::string path;
  int64_t ir_version = 0;
  int64_t opset = 0;  // of ONNX's standard domain
  std::string producer;
  std::vector<FileValue> values;
  std::vector<Initializer> initializers;
  std::vector<Node> nodes;
  std::vector<int> inputs;  // without those that have an initializer
  std::vector<int> outputs;
  bool declares = false;   // whether it declares which initializers are parameters
  bool optimized = false;  // whether the exporter's optimizer computed some of its values
  std::vector<std::string> lost_parameters;  // declared, but not in the file
  // The lost parameters that nodes read before the exporter dropped them: neither tied nor unused.
  std::vector<std::string> dropped_parameters;
  std::vector<FoldedNorm> folded_norms;
};

// Reads the file; external data is mapped. Throws ConfigError in the form `PATH: problem; allowed`
// if it is not an ONNX file, has an opset outside 9 to 23, external data that is too short or
// outside the file's folder, values without a source, cycles, or unknown types and domains. Unknown
// ops are no error here. Arrays keep the parts of the file that they need; aligned external
// elements are not copied.
File read_file(const std::string& path);

enum class ValueKind : uint8_t {
  kInput,      // of the network
  kParameter,  // an initializer or constant that may learn
  kConstant,   // known at bind time
  kComputed,
};

struct Value {
  std::string name;
  ElementType type = ElementType::kFloat;
  Extents extents;
  ValueKind kind = ValueKind::kComputed;
  Array array = {};  // of parameters and constants
  // For parameters, the index in File::initializers, or -1 if it was a Constant node.
  int initializer = -1;
};

// The network for one lane's batch, with static extents. Nodes whose inputs are all constant are
// folded, and nodes that no output needs are dropped.
struct Network {
  std::vector<Value> values;  // the file's values have the same numbers
  std::vector<Node> nodes;
  std::vector<int> inputs;
  std::vector<int> outputs;
  int64_t folded_bytes = 0;  // of all values that were computed before the start
};

// For each value, the node that computes it; null if there is none.
std::vector<const Node*> producers_of(const Network& network);

struct BindOptions {
  int64_t batch = 1;            // extent of the batch's axis, if that is open
  std::string batch_axis = {};  // name of the batch's axis; empty: the first axis of each input
  // Extents of other open axes, by name, or by "INPUT.AXIS" if they have none.
  std::map<std::string, int64_t> axes = {};
  std::map<std::string, Extents> inputs = {};  // all extents of an input; these take precedence
  // Batch norms use the file's running statistics and are replaced by elementwise ops.
  bool running_norms = false;
  // Limit for all folded values together, which are held until the last node is bound.
  int64_t max_folded_bytes = int64_t{4} << 30;
  bool all_constant = false;  // no initializer learns, so everything that inputs do not reach folds
  std::map<std::string, Array> known = {};  // inputs that are constants, with their extents
  std::vector<size_t> outputs = {};         // indices of the outputs that are needed; empty: all
  size_t losses = SIZE_MAX;                 // how many of these, the first, have a loss
};

// What decided whether an initializer learns.
enum class Source : uint8_t {
  kRule,    // the rule of classify(), which guesses from the graph
  kFile,    // Declared
  kConfig,  // model.onnx.trainable or constant
};

// Which of the file's values learn, by the number of the value.
struct Classes {
  std::vector<bool> parameter;      // whether the initializer or Constant node is a parameter
  std::vector<Source> source = {};  // what decided that
  // The nodes (indices in File::nodes, ascending) that use the parameter as bias, gain, or scale or
  // bias of a normalization. Only parameters with such nodes have an entry.
  std::map<int, std::vector<int>> vector_nodes = {};
};

// A parameter that several nodes use as bias, gain, or scale or bias of a normalization. An
// exporter that merges initializers with equal elements ties parameters that were separate.
struct MergedInitializer {
  std::string name;
  std::vector<std::string> nodes;  // Node::description() of each
};

// What takes precedence over the rule of classify().
struct Selection {
  bool declared = true;  // use the file's declarations
  // Names from the config, which take precedence over the file's declarations.
  std::function<bool(const std::string&)> trainable = nullptr;
  std::function<bool(const std::string&)> constant = nullptr;
};

// Decides which initializers learn. The config's patterns take precedence over the file's
// declarations, and these over the rule. By the rule, parameters are floating-point initializers
// that a node uses as a weight, bias, gain or table, directly or through ops that only move
// elements, if another input of the node depends on the network's inputs and a gradient reaches the
// node. Masks and values that the exporter computed are excluded. Running statistics of batch norms
// never are parameters.
Classes classify(const File& file, const Selection& selection = {});
// Names of floating-point initializers and Constant nodes, in the file's order. With `trainable`,
// without the Constant nodes that are numbers of the arithmetic, which no pattern makes learn.
std::vector<std::string> names_of_numbers(const File& file, bool trainable);
// The merged parameters, in the order of values. Parameters of modules that a model calls several
// times are among them.
std::vector<MergedInitializer> merged_initializers(const File& file, const Classes& classes);

// Finds the type and extents of every value, folds constants, and drops nodes that no output needs.
// Throws ConfigError for axes that stay open, unknown ops, unsupported forms of ops, and extents
// that depend on data.
Network bind(const File& file, const Classes& classes, const BindOptions& options);

// The number of calls of bind() in this process, for tests.
int64_t bind_count();

// All reasons why the file cannot be bound: the errors of nodes with known ops. A node that needs
// the output of a failed node is skipped.
std::vector<std::string> bind_problems(const File& file,
                                       const Classes& classes,
                                       const BindOptions& options);

}  // namespace lockstep::onnx
