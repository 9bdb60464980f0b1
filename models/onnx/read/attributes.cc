#include "models/onnx/read/attributes.h"

#include <algorithm>

#include "models/onnx/schema/onnx.pb.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::onnx {
namespace {

using Proto = schema::AttributeProto;

bool has(const Attributes& attributes, const std::string& name) {
  return attributes.known.count(name) > 0 ||
         std::ranges::find(attributes.unsupported, name) != attributes.unsupported.end();
}

// Early versions of the format have no type field; then the field that is set gives the type.
Proto::AttributeType type_of(const Proto& attribute) {
  if (attribute.type() != Proto::UNDEFINED) return attribute.type();
  if (attribute.has_f()) return Proto::FLOAT;
  if (attribute.has_i()) return Proto::INT;
  if (attribute.has_s()) return Proto::STRING;
  if (attribute.has_t()) return Proto::TENSOR;
  if (attribute.has_g()) return Proto::GRAPH;
  if (attribute.floats_size() > 0) return Proto::FLOATS;
  if (attribute.ints_size() > 0) return Proto::INTS;
  if (attribute.strings_size() > 0) return Proto::STRINGS;
  if (attribute.graphs_size() > 0) return Proto::GRAPHS;
  return Proto::UNDEFINED;
}

void refer(Attributes& attributes, const Proto& attribute, const Attributes& call) {
  const auto found = call.known.find(attribute.ref_attr_name());
  if (found != call.known.end())
    attributes.known[attribute.name()] = found->second;
  else if (has(call, attribute.ref_attr_name()))
    attributes.unsupported.push_back(attribute.name());
}

}  // namespace

void add_attribute(Attributes& attributes,
                   const Proto& attribute,
                   TensorReader& tensors,
                   const std::string& path,
                   const std::string& what) {
  const std::string& name = attribute.name();
  if (name.empty() || has(attributes, name))
    throw ConfigError("{}: {}: attribute name {} is empty or occurs twice; names must be unique",
                      path,
                      what,
                      quote_name(name));
  Attribute& value = attributes.known[name];
  switch (type_of(attribute)) {
    case Proto::FLOAT: value = attribute.f(); return;
    case Proto::INT: value = static_cast<int64_t>(attribute.i()); return;
    case Proto::STRING: value = attribute.s(); return;
    case Proto::TENSOR:
      value = tensors.read(attribute.t(), fmt::format("{}: attribute {}", what, quote_name(name)));
      return;
    case Proto::FLOATS:
      value = std::vector<float>(attribute.floats().begin(), attribute.floats().end());
      return;
    case Proto::INTS:
      value = std::vector<int64_t>(attribute.ints().begin(), attribute.ints().end());
      return;
    case Proto::STRINGS:
      value = std::vector<std::string>(attribute.strings().begin(), attribute.strings().end());
      return;
    case Proto::UNDEFINED:
      throw ConfigError("{}: {}: attribute {} has no type; must be a number, text, tensor or list",
                        path,
                        what,
                        quote_name(name));
    default: break;
  }
  attributes.known.erase(name);
  attributes.unsupported.push_back(name);
}

Attributes read_attributes(const schema::NodeProto& node,
                           const Attributes* call,
                           TensorReader& tensors,
                           const std::string& path,
                           const std::string& what) {
  Attributes attributes;
  for (const Proto& attribute : node.attribute()) {
    if (attribute.ref_attr_name().empty()) {
      add_attribute(attributes, attribute, tensors, path, what);
      continue;
    }
    if (call == nullptr)
      throw ConfigError(
          "{}: {}: attribute {} refers to an attribute of a call; only functions may do that",
          path,
          what,
          quote_name(attribute.name()));
    refer(attributes, attribute, *call);
  }
  return attributes;
}

}  // namespace lockstep::onnx
