#include "models/onnx/samples/node_labels.h"

#include <algorithm>
#include <functional>

#include "models/onnx/nodes/ranges.h"
#include "models/onnx/nodes/strided.h"

namespace lockstep::onnx {
namespace {

constexpr int64_t kMaxIndices = int64_t{1} << 20;  // values with more elements are not analysed
constexpr int kMaxDepth = 50;                      // nodes in a chain

class Finder {
 public:
  explicit Finder(const Network& network) : network_(network), producers_(producers_of(network)) {}

  Bounds of(int number, int depth = 0) {
    if (number < 0) return {};
    const Value& value = network_.values[static_cast<size_t>(number)];
    const int64_t count = elements(value.extents);
    if (count == 0 || count > kMaxIndices || depth > kMaxDepth) return {};
    if (value.kind == ValueKind::kConstant) {
      const std::vector<double> known = value.array.as_double();
      return {known, known};
    }
    const Node* const node = producers_[static_cast<size_t>(number)];
    if (value.kind != ValueKind::kComputed || node == nullptr || !node->domain.empty()) return {};
    const Bounds found = computed(*node, value.extents, depth + 1);
    if (found.known()) return found;
    const auto range = range_of(network_, number, {});
    return range ? filled(count, range->min, range->max) : Bounds{};
  }

 private:
  static Bounds filled(int64_t count, double min, double max) {
    return {std::vector<double>(static_cast<size_t>(count), min),
            std::vector<double>(static_cast<size_t>(count), max)};
  }

  const Extents& extents_of(int number) const {
    return network_.values[static_cast<size_t>(number)].extents;
  }

  static std::vector<double> broadcast(const std::vector<double>& from,
                                       const Extents& from_extents,
                                       const Extents& to) {
    return broadcast_to(array_of(ElementType::kDouble, from_extents, from), to).as_double();
  }

  // The bounds of an input, broadcast to the output's extents.
  Bounds input(const Node& node, size_t index, const Extents& to, int depth) {
    Bounds found = of(node.input(index), depth);
    if (!found.known()) return found;
    const Extents& from_extents = extents_of(node.input(index));
    return {broadcast(found.min, from_extents, to), broadcast(found.max, from_extents, to)};
  }

  Bounds computed(const Node& node, const Extents& to, int depth) {
    const auto is = [&](std::initializer_list<const char*> ops) {
      return std::ranges::any_of(ops, [&](const char* op) { return node.op == op; });
    };
    // These ops keep the elements and their order.
    if (is({"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Cast", "CastLike"}))
      return of(node.input(0), depth);
    if (is({"Expand"})) return input(node, 0, to, depth);
    if (is({"Concat"})) return concatenated(node, to, depth);
    if (is({"ArgMax", "ArgMin"})) {
      const Extents& from = extents_of(node.input(0));
      const auto rank = static_cast<int64_t>(from.size());
      const int64_t axis = node.integer("axis", 0);
      return filled(
          elements(to),
          0,
          static_cast<double>(from[static_cast<size_t>(axis < 0 ? axis + rank : axis)] - 1));
    }
    if (is({"Where"}))
      return of_pair(input(node, 1, to, depth), input(node, 2, to, depth), [](auto a, auto b) {
        return std::pair(std::min(a.first, b.first), std::max(a.second, b.second));
      });
    if (!is({"Add", "Sub", "Mul", "Mod"})) return {};
    const Bounds a = input(node, 0, to, depth), b = input(node, 1, to, depth);
    if (is({"Mod"})) return remainder(b);
    return of_pair(a, b, [&](auto x, auto y) {
      if (is({"Add"})) return std::pair(x.first + y.first, x.second + y.second);
      if (is({"Sub"})) return std::pair(x.first - y.second, x.second - y.first);
      const auto [min, max] = std::minmax(
          {x.first * y.first, x.first * y.second, x.second * y.first, x.second * y.second});
      return std::pair(min, max);
    });
  }

  static Bounds of_pair(const Bounds& a,
                        const Bounds& b,
                        const std::function<std::pair<double, double>(
                            std::pair<double, double>, std::pair<double, double>)>& function) {
    if (!a.known() || !b.known()) return {};
    Bounds made;
    for (size_t i = 0; i < a.min.size(); ++i) {
      const auto [min, max] = function({a.min[i], a.max[i]}, {b.min[i], b.max[i]});
      made.min.push_back(min);
      made.max.push_back(max);
    }
    return made;
  }

  // The remainder has the divisor's sign.
  static Bounds remainder(const Bounds& divisor) {
    Bounds made;
    for (size_t i = 0; i < divisor.min.size(); ++i) {
      if (divisor.min[i] < 1) return {};
      made.min.push_back(0);
      made.max.push_back(divisor.max[i] - 1);
    }
    return made;
  }

  Bounds concatenated(const Node& node, const Extents& to, int depth) {
    const auto rank = static_cast<int64_t>(to.size());
    const int64_t axis = node.integer("axis", 0);
    const auto axis_index = static_cast<size_t>(axis < 0 ? axis + rank : axis);
    const int64_t inner = elements({to.begin() + static_cast<int64_t>(axis_index) + 1, to.end()});
    const int64_t rows = elements({to.begin(), to.begin() + static_cast<int64_t>(axis_index)});
    std::vector<Bounds> parts;
    for (const int part : node.inputs) {
      parts.push_back(of(part, depth));
      if (!parts.back().known()) return {};
    }
    Bounds made;
    for (int64_t row = 0; row < rows; ++row)
      for (size_t i = 0; i < parts.size(); ++i) {
        const int64_t length = extents_of(node.inputs[i])[axis_index] * inner;
        for (int64_t at = row * length; at < (row + 1) * length; ++at) {
          made.min.push_back(parts[i].min[static_cast<size_t>(at)]);
          made.max.push_back(parts[i].max[static_cast<size_t>(at)]);
        }
      }
    return made;
  }

  const Network& network_;
  std::vector<const Node*> producers_;  // by value
};

}  // namespace

Bounds bounds_of(const Network& network, int value) { return Finder(network).of(value); }

}  // namespace lockstep::onnx
