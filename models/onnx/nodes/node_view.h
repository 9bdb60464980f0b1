#pragma once
// A node with the types, extents and known elements of its inputs: the view of rules and
// evaluators.

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/onnx/network.h"
#include "models/onnx/read/constants.h"

namespace lockstep::onnx {

// Type and extents of a value.
struct Form {
  ElementType type = ElementType::kFloat;
  Extents extents;
};

// Limit for the elements of a value, so that products of extents cannot overflow.
constexpr int64_t kMaxElements = int64_t{1} << 46;
// Limit for extents and attributes with which rules compute.
constexpr int64_t kMaxExtent = int64_t{1} << 40;

// Everything that a rule may ask of a node. If the node does not have what is asked for, throws
// ConfigError with the node's description.
class NodeView {
 public:
  // Both must outlive the view. `values` are the network's values so far, by number.
  NodeView(const Node& node, const std::vector<Value>& values) : node_(node), values_(values) {}

  const Node& node() const { return node_; }
  int64_t opset() const { return node_.opset; }
  size_t inputs() const { return node_.inputs.size(); }
  size_t outputs() const { return node_.outputs.size(); }

  bool has(size_t index) const { return node_.input(index) >= 0; }
  // These throw if the input is absent.
  const Value& input(size_t index) const;
  ElementType type(size_t index) const { return input(index).type; }
  const Extents& extents(size_t index) const { return input(index).extents; }
  int64_t rank(size_t index) const { return static_cast<int64_t>(extents(index).size()); }
  Form form(size_t index) const { return {type(index), extents(index)}; }

  // Whether the input is present and its elements are known.
  bool known(size_t index) const;
  // The elements; throws if they are not known.
  const Array& array(size_t index) const;
  std::vector<int64_t> known_integers(size_t index) const { return array(index).as_int64(); }
  // The only element, as an integer or a number.
  int64_t known_integer(size_t index) const;
  double known_number(size_t index) const;

  // A list that is an attribute in some opsets and an input in others; none if it is absent.
  std::optional<std::vector<int64_t>> list(const std::string& attribute, size_t index) const;

  // The attribute, which must be within [min, max].
  int64_t integer(const std::string& attribute,
                  int64_t otherwise,
                  int64_t min = -kMaxExtent,
                  int64_t max = kMaxExtent) const;
  // The attribute: `count` integers within [min, max]. If it is absent, all are `otherwise`.
  std::vector<int64_t> integers(const std::string& attribute,
                                size_t count,
                                int64_t otherwise,
                                int64_t min,
                                int64_t max = kMaxExtent) const;

  // Checks an axis of a value with `rank` axes; below 0 it counts from the end.
  size_t axis(int64_t axis, int64_t rank) const;
  // The same for several axes, which must differ.
  std::vector<size_t> axes(const std::vector<int64_t>& axes, int64_t rank) const;

  void require_rank(size_t index, int64_t min, int64_t max) const;
  void require_floating(size_t index) const;
  void require_integers(size_t index) const;
  void require_extents(size_t index, const Extents& expected) const;
  void require_type(size_t index, ElementType type) const;
  void require_same_type(size_t first, size_t second) const;
  // The first `min` inputs must be present, and there may be at most `max`.
  void require_inputs(size_t min, size_t max) const;

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    onnx::refuse(node_, format, std::forward<Args>(args)...);
  }

 private:
  const Node& node_;
  const std::vector<Value>& values_;
};

// The extents of two values that are broadcast against each other, by the rule of ONNX and NumPy.
Extents broadcast(const NodeView& node, const Extents& first, const Extents& second);
// Product of the extents, none of which is below 0; none if it exceeds kMaxElements.
std::optional<int64_t> elements_within_limit(const Extents& extents);
// Product of the extents. Rejects negative extents and products above kMaxElements.
int64_t checked_elements(const NodeView& node, const Extents& extents);
// Product of extents [begin, end).
int64_t product(const Extents& extents, size_t begin, size_t end);

// The type of the attribute, or `otherwise` if it is absent. Rejects unsupported types.
ElementType type_of_attribute(const NodeView& node,
                              const std::string& attribute,
                              ElementType otherwise);

}  // namespace lockstep::onnx
