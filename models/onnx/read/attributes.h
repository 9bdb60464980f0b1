#pragma once
// Reads the attributes of nodes of an ONNX file.

#include <map>
#include <string>
#include <vector>

#include "models/onnx/network.h"
#include "models/onnx/read/tensors.h"

namespace lockstep::onnx {

namespace schema {
class AttributeProto;
class NodeProto;
}  // namespace schema

struct Attributes {
  std::map<std::string, Attribute> known;
  std::vector<std::string> unsupported;  // names of graphs, sparse tensors and the like
};

// Adds one attribute. `what` describes its node, for error messages. Throws ConfigError if its name
// exists already or it has no type.
void add_attribute(Attributes& attributes,
                   const schema::AttributeProto& attribute,
                   TensorReader& tensors,
                   const std::string& path,
                   const std::string& what);

// The attributes of a node. In a function, `call` has the attributes of the call: an attribute that
// refers to one of them takes its value, or is absent if the call has no such attribute. Outside of
// functions `call` is null.
Attributes read_attributes(const schema::NodeProto& node,
                           const Attributes* call,
                           TensorReader& tensors,
                           const std::string& path,
                           const std::string& what);

}  // namespace lockstep::onnx
