#pragma once
// A node beside what is known of its inputs, as the rules and evaluators of ops see it.

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/onnx/network.h"
#include "runtime/base/error.h"

namespace lockstep::onnx {

// Type and extents of a value.
struct Form {
  ElementType type = ElementType::kFloat;
  Extents extents;
};

// More elements than any value may have: products of extents below it cannot overflow.
constexpr int64_t kMostElements = int64_t{1} << 46;
// The longest extent or attribute that rules compute with.
constexpr int64_t kLongestExtent = int64_t{1} << 40;

// Everything that a rule may ask of a node. What is not as asked for is refused: ConfigError with the
// node's description.
class NodeView {
 public:
  // Both must outlive the view. `values` are those of the network so far, by number.
  NodeView(const Node& node, const std::vector<Value>& values) : node_(node), values_(values) {}

  const Node& node() const { return node_; }
  int64_t opset() const { return node_.opset; }
  size_t inputs() const { return node_.inputs.size(); }
  size_t outputs() const { return node_.outputs.size(); }

  bool has(size_t place) const { return node_.input(place) >= 0; }
  // These refuse where the input is absent.
  const Value& input(size_t place) const;
  ElementType type(size_t place) const { return input(place).type; }
  const Extents& extents(size_t place) const { return input(place).extents; }
  int64_t rank(size_t place) const { return static_cast<int64_t>(extents(place).size()); }
  Form form(size_t place) const { return {type(place), extents(place)}; }

  // Whether the input is there and its elements are known.
  bool known(size_t place) const;
  // The elements; refuses where they are computed.
  const Array& array(size_t place) const;
  std::vector<int64_t> known_integers(size_t place) const { return array(place).as_int64(); }
  // The only element, as an integer or a number.
  int64_t known_integer(size_t place) const;
  double known_number(size_t place) const;

  // A list that is an attribute in some opsets and an input in others; none where it is neither.
  std::optional<std::vector<int64_t>> list(const std::string& attribute, size_t place) const;

  // The attribute, which must be within [least, most].
  int64_t integer(const std::string& attribute,
                  int64_t otherwise,
                  int64_t least = -kLongestExtent,
                  int64_t most = kLongestExtent) const;
  // The attribute: `count` integers within [least, most], each `otherwise` where there is none.
  std::vector<int64_t> integers(const std::string& attribute,
                                size_t count,
                                int64_t otherwise,
                                int64_t least,
                                int64_t most = kLongestExtent) const;

  // An axis of a value of `rank` axes, counted from the end where below 0.
  size_t axis(int64_t axis, int64_t rank) const;
  // Several, none twice.
  std::vector<size_t> axes(const std::vector<int64_t>& axes, int64_t rank) const;

  void require_rank(size_t place, int64_t least, int64_t most) const;
  void require_floating(size_t place) const;
  void require_integers(size_t place) const;
  void require_type(size_t place, ElementType type) const;
  void require_same_type(size_t first, size_t second) const;
  // Inputs that must be there.
  void require_inputs(size_t least, size_t most) const;

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    refuse_saying(fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  [[noreturn]] void refuse_saying(const std::string& what) const;

  const Node& node_;
  const std::vector<Value>& values_;
};

// The extents of values that are broadcast against each other, by ONNX's (NumPy's) rule.
Extents broadcast(const NodeView& node, const Extents& first, const Extents& second);
// Product of the extents, none of which is below 0; nothing where it is beyond kMostElements.
std::optional<int64_t> elements_within_limit(const Extents& extents);
// Product of the extents; refuses one that is no number of elements.
int64_t checked_elements(const NodeView& node, const Extents& extents);
// Product of extents [begin, end).
int64_t product(const Extents& extents, size_t begin, size_t end);

}  // namespace lockstep::onnx
