#pragma once
// Reads the nodes of an ONNX file and expands calls of the functions that the file defines.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "models/onnx/network.h"
#include "models/onnx/read/attributes.h"
#include "models/onnx/read/tensors.h"

namespace lockstep::onnx {

namespace schema {
class FunctionProto;
class GraphProto;
class ModelProto;
class NodeProto;
}  // namespace schema

using Opsets = std::map<std::string, int64_t>;  // by domain

// Normalises a domain: ONNX's standard domain is "", but may also be written "ai.onnx".
std::string domain_of(const std::string& written);

// Fills File::values and File::nodes. All methods throw ConfigError.
class NodeReader {
 public:
  NodeReader(const schema::ModelProto& model,
             const Opsets& opsets,
             TensorReader& tensors,
             File& file);

  // The number of the graph's value of this name, which is added if there is none; -1 for "".
  int value(const std::string& name) { return value(graph_, name); }
  // Records `what` as the source of the value. Throws ConfigError if it has one already.
  void give(int value, const std::string& what);
  void read(const schema::GraphProto& graph);
  // Whether give() was called for the value.
  bool has_source(int value) const { return sources_.count(value) > 0; }

 private:
  // The scope of nodes: the graph, or one call of a function.
  struct Surroundings {
    std::unordered_map<std::string, int> values = {};
    Opsets opsets = {};
    const Attributes* call = nullptr;
    std::string prefix = {};  // of names; empty in the graph
    std::string scope = {};
    std::vector<const schema::FunctionProto*> calls = {};  // the chain of calls
  };

  int value(Surroundings& around, const std::string& name);
  int make_value(const Surroundings& around, const std::string& name);
  void read_node(Surroundings& around, const schema::NodeProto& proto);
  Node describe(const Surroundings& around, const schema::NodeProto& proto) const;
  const schema::FunctionProto* function_of(const schema::NodeProto& node) const;
  bool take_constant(const Node& node);
  void expand(Surroundings& around, const schema::NodeProto& proto, const Node& call);
  Surroundings inside(Surroundings& around,
                      const schema::FunctionProto& function,
                      const schema::NodeProto& proto,
                      const Node& call);
  void charge(size_t bytes);

  TensorReader& tensors_;
  File& file_;
  Surroundings graph_;
  std::map<std::tuple<std::string, std::string, std::string>, const schema::FunctionProto*>
      functions_;                                 // by domain, name, overload
  std::unordered_set<std::string> names_;         // of all values
  std::unordered_map<int, std::string> sources_;  // by value: see give()
  size_t read_nodes_ = 0;
  size_t expanded_bytes_ = 0;
};

// Throws ConfigError if `version` of ONNX's standard opset is not in 9 to 23. `what` (the file or a
// function) imports it.
void require_opset(int64_t version, const std::string& path, const std::string& what);

}  // namespace lockstep::onnx
