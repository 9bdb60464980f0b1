#include "models/onnx/nodes/ranges.h"

#include <algorithm>
#include <vector>

#include "models/onnx/nodes/ids.h"
#include "models/onnx/read/constants.h"

namespace lockstep::onnx {
namespace {

using Known = std::optional<Range>;

// The smallest range that contains both.
Range both(const Range& a, const Range& b) {
  return {std::min(a.min, b.min), std::max(a.max, b.max), a.counts || b.counts};
}

// The range of function(x, y): its minimum and maximum over the ends of both ranges.
template <typename Function>
Range of_ends(const Range& a, const Range& b, const Function& function) {
  const double ends[] = {function(a.min, b.min),
                         function(a.min, b.max),
                         function(a.max, b.min),
                         function(a.max, b.max)};
  return {std::ranges::min(ends), std::ranges::max(ends), a.counts || b.counts};
}

class Ranges {
 public:
  Ranges(const Network& network, const std::map<int, int64_t>& limits)
      : network_(network), limits_(limits), producers_(producers_of(network)) {}

  Known of(int value) {
    if (value < 0 || --left_ < 0) return std::nullopt;
    const Value& known = network_.values[static_cast<size_t>(value)];
    if (known.kind == ValueKind::kConstant) return of_constant(known.array);
    if (const auto limit = limits_.find(value); limit != limits_.end())
      return Range{0, static_cast<double>(limit->second - 1)};
    if (known.type == ElementType::kBool) return Range{0, 1};
    const Node* const node = producers_[static_cast<size_t>(value)];
    if (node == nullptr || known.kind != ValueKind::kComputed) return std::nullopt;
    return of_node(*node);
  }

 private:
  static Known of_constant(const Array& array) {
    const std::vector<double> elements = array.as_double();
    if (elements.empty()) return std::nullopt;
    const auto [min, max] = std::ranges::minmax(elements);
    return Range{min, max};
  }

  Known of_node(const Node& node) {
    if (moves_elements(node) || is_op(&node, "Cast") || is_op(&node, "CastLike"))
      return of(node.input(0));
    if (is_op(&node, "CumSum")) {
      const Known each = of(node.input(0)), axis = of(node.input(1));
      if (!each || !axis) return std::nullopt;
      const Extents& extents = network_.values[static_cast<size_t>(node.input(0))].extents;
      const auto axis_index = static_cast<int64_t>(axis->max);
      const auto rank = static_cast<int64_t>(extents.size());
      const auto n = static_cast<double>(
          extents[static_cast<size_t>(axis_index < 0 ? axis_index + rank : axis_index)]);
      return Range{std::min(0.0, each->min * n), std::max(0.0, each->max * n), true};
    }
    if (is_op(&node, "Where")) {
      const Known a = of(node.input(1)), b = of(node.input(2));
      if (!a || !b) return std::nullopt;
      return both(*a, *b);
    }
    const bool pair = node.inputs.size() == 2;
    for (const auto& [op, function] : kPairs) {
      if (!pair || !is_op(&node, op)) continue;
      const Known a = of(node.input(0)), b = of(node.input(1));
      if (!a || !b) return std::nullopt;
      return of_ends(*a, *b, function);
    }
    return std::nullopt;
  }

  struct Pair {
    const char* op;
    double (*function)(double, double);
  };
  static constexpr Pair kPairs[] = {
      {"Add", [](double a, double b) { return a + b; }},
      {"Sub", [](double a, double b) { return a - b; }},
      {"Mul", [](double a, double b) { return a * b; }},
      {"Min", [](double a, double b) { return std::min(a, b); }},
      {"Max", [](double a, double b) { return std::max(a, b); }},
  };

  const Network& network_;
  const std::map<int, int64_t>& limits_;
  std::vector<const Node*> producers_;  // by value
  int left_ = 200;                      // values that may still be visited: bounds the search
};

}  // namespace

std::optional<Range> range_of(const Network& network,
                              int value,
                              const std::map<int, int64_t>& limits) {
  return Ranges(network, limits).of(value);
}

}  // namespace lockstep::onnx
