#pragma once
// Attributes of the nodes of an ONNX file.

#include <map>
#include <string>
#include <vector>

#include "models/onnx/network.h"
#include "models/onnx/tensors.h"

namespace lockstep::onnx {

namespace schema {
class AttributeProto;
class NodeProto;
}  // namespace schema

struct Attributes {
  std::map<std::string, Attribute> known;
  std::vector<std::string> unsupported;  // graphs, sparse tensors and the like, by name
};

// Adds one attribute of what `what` describes. Throws ConfigError where its name stands there already
// or its type is none of the format's.
void add_attribute(Attributes& attributes,
                   const schema::AttributeProto& attribute,
                   TensorReader& tensors,
                   const std::string& path,
                   const std::string& what);

// Those of a node. In a function, what refers to an attribute of the call is that one, and absent
// where `call` has none; `call` is null outside.
Attributes read_attributes(const schema::NodeProto& node,
                           const Attributes* call,
                           TensorReader& tensors,
                           const std::string& path,
                           const std::string& what);

}  // namespace lockstep::onnx
