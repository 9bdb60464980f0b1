#pragma once
// The ONNX graph that is written from a forward graph: its nodes, inputs and initializers, and the
// value of every tensor. The rows of op_rows.h write the ops.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/onnx/read/array.h"
#include "models/onnx/trained_file.h"
#include "runtime/graph/graph.h"

namespace lockstep::onnx {

namespace schema {
class GraphProto;
class ModelProto;
class TensorProto;
class ValueInfoProto;
}  // namespace schema

// LayerNormalization is new in this opset, and ONNX Runtime has it since 1.12 (2022).
inline constexpr int64_t kWrittenOpset = 17;

// The same network for two numbers of samples and, if its length is open, of tokens. An extent that
// differs between the two is an open axis of the file.
struct ProbedGraph {
  graph::Graph graph, other;
  int64_t samples = 0, other_samples = 0;
  int64_t tokens = 0, other_tokens = 0;  // equal: the length is fixed
};

struct NodeAttribute {
  const char* name;
  std::variant<int64_t, float, std::vector<int64_t>> value;
};

using Names = std::vector<std::string>;  // of values

class GraphWriter {
 public:
  // The names of open axes.
  static constexpr const char *kBatch = "batch", *kSequence = "sequence";

  // `elements` returns the trained parameters. Both are borrowed.
  GraphWriter(const ProbedGraph& network, const TrainedElements& elements);
  ~GraphWriter();

  const graph::Graph& graph() const { return network_.graph; }
  const Shape& shape(TensorId tensor) const { return graph().shape(tensor); }
  // The name of the axis; null if its extent is fixed.
  const char* open_axis(TensorId tensor, int dimension) const;
  // Throws ConfigError for the op that is being written; `what` cannot be written.
  [[noreturn]] void refuse(const std::string& what) const;

  // Names the nodes that follow.
  void begin(const graph::Op& op) { op_ = &op; }
  std::string node(const char* type,
                   const Names& inputs,
                   const std::vector<NodeAttribute>& attributes = {});
  // Parts of x along an axis, with these extents.
  Names split(const std::string& x, int64_t axis, const std::vector<int64_t>& extents);
  // Numbers that the arithmetic needs; equal ones are one initializer.
  std::string integer(int64_t value);                      // () int64
  std::string integers(const std::vector<int64_t>& list);  // (n) int64
  std::string number(double value);                        // () f32
  std::string numbers(const Extents& extents, const std::vector<float>& elements);
  // A value that several ops need: made once for each key.
  std::string shared(const std::string& key, const std::function<std::string()>& make);
  // The extent of an axis as (1) int64.
  std::string length(TensorId tensor, int dimension);
  // 0, 1, ... below the extent of an axis: (T) int64.
  std::string positions(TensorId tensor, int dimension);

  // Adds an input of the file. `order`: which dimensions of the tensor its axes are.
  std::string input(const std::string& name,
                    int element_type,
                    TensorId tensor,
                    const std::vector<int>& order);

  // The value of a tensor or of a parameter, whose elements are in the order of files. Images (N,
  // H, W, C) are (N, C, H, W) in ONNX: they stay so from op to op, and are transposed for ops that
  // ask for plain().
  std::string plain(TensorId tensor);
  std::string channels_first(TensorId tensor);
  bool is_channels_first(TensorId tensor) const;
  void set(TensorId tensor, const std::string& value) { plain_[tensor] = value; }
  void set_channels_first(TensorId tensor, const std::string& value) { first_[tensor] = value; }

  // Ends the graph with its output. Initializers have no elements yet: they are in elements().
  const schema::ModelProto& finish(const std::string& name);
  const std::map<std::string, Array>& elements() const { return elements_; }

 private:
  std::string unused_name(const std::string& wanted);
  std::string parameter(TensorId id);
  std::string constant(const std::string& key, Array array);
  void add_initializer(const std::string& name, Array array, const char* kind);
  void set_axes(schema::ValueInfoProto& value,
                int element_type,
                TensorId tensor,
                const std::vector<int>& order) const;
  void rename(const std::string& from, const std::string& to);

  const ProbedGraph& network_;
  const TrainedElements& trained_;
  const graph::Op* op_ = nullptr;
  std::unique_ptr<schema::ModelProto> model_;
  std::set<std::string> names_;
  std::map<TensorId, std::string> plain_, first_;
  std::map<std::string, std::string> shared_;
  std::map<std::string, std::pair<std::string, int>> open_;  // by axis: an input and its dimension
  std::map<std::string, Array> elements_;                    // of initializers, by name
};

}  // namespace lockstep::onnx
