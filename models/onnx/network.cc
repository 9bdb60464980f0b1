#include "models/onnx/network.h"

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::onnx {
namespace {

template <typename T>
T attribute_of(const Node& node, const std::string& name, T otherwise, const char* kind) {
  const auto found = node.attributes.find(name);
  if (found == node.attributes.end()) return otherwise;
  if (const T* value = std::get_if<T>(&found->second)) return *value;
  throw ConfigError(
      "{}: attribute {} is of another type; must be {}", node.description(), name, kind);
}

}  // namespace

int64_t Node::integer(const std::string& attribute, int64_t otherwise) const {
  return attribute_of(*this, attribute, otherwise, "an integer");
}

float Node::number(const std::string& attribute, float otherwise) const {
  return attribute_of(*this, attribute, otherwise, "a number");
}

std::string Node::text(const std::string& attribute, const std::string& otherwise) const {
  return attribute_of(*this, attribute, otherwise, "a text");
}

std::vector<int64_t> Node::integers(const std::string& attribute,
                                    std::vector<int64_t> otherwise) const {
  return attribute_of(*this, attribute, std::move(otherwise), "a list of integers");
}

std::vector<float> Node::numbers(const std::string& attribute, std::vector<float> otherwise) const {
  return attribute_of(*this, attribute, std::move(otherwise), "a list of numbers");
}

std::string Node::description() const {
  const std::string kind = domain.empty() ? op : domain + "." + op;
  const std::string where = scope.empty() ? "" : ", in " + scope;
  return escape_controls(fmt::format("node {} \"{}\" (opset {}{})", kind, name, opset, where));
}

std::vector<const Node*> producers_of(const Network& network) {
  std::vector<const Node*> producers(network.values.size(), nullptr);
  for (const Node& node : network.nodes)
    for (const int output : node.outputs)
      if (output >= 0) producers[static_cast<size_t>(output)] = &node;
  return producers;
}

}  // namespace lockstep::onnx
