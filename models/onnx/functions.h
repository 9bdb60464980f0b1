#pragma once
// The nodes of an ONNX file, in which calls of the file's own functions are replaced by the functions'
// nodes.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "models/onnx/attributes.h"
#include "models/onnx/network.h"
#include "models/onnx/tensors.h"

namespace lockstep::onnx {

namespace schema {
class FunctionProto;
class GraphProto;
class ModelProto;
class NodeProto;
}  // namespace schema

using Opsets = std::map<std::string, int64_t>;  // by domain

// A domain as it is compared: ONNX's own may also be written "ai.onnx".
std::string domain_of(const std::string& written);

// Fills File::values and File::nodes. All throw ConfigError.
class NodeReader {
 public:
  NodeReader(const schema::ModelProto& model,
             const Opsets& opsets,
             TensorReader& tensors,
             File& file);

  // The number of the graph's value of that name, made where there is none; -1 of "".
  int value(const std::string& name) { return value(graph_, name); }
  // Says that `what` gives the value; nothing else may.
  void give(int value, const std::string& what);
  void read(const schema::GraphProto& graph);
  // Whether something gives the value.
  bool has_source(int value) const { return sources_.count(value) > 0; }

 private:
  // What stands around nodes: the graph, or one call of a function.
  struct Surroundings {
    std::unordered_map<std::string, int> values = {};
    Opsets opsets = {};
    const Attributes* call = nullptr;
    std::string prefix = {};  // of names; empty in the graph
    std::string scope = {};
    std::vector<const schema::FunctionProto*> calls = {};  // that led here
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
  std::unordered_map<int, std::string> sources_;  // by value: what gives it
  size_t read_nodes_ = 0;
  size_t expanded_bytes_ = 0;
};

// Throws ConfigError where `version` of ONNX's own opset, which `what` of the file imports, is not one of 9 to 23.
void check_opset(int64_t version, const std::string& path, const std::string& what);

}  // namespace lockstep::onnx
