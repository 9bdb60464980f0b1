#include "models/onnx/nodes/lowering/fusion_plan.h"

#include <array>
#include <optional>
#include <utility>

#include "models/onnx/nodes/lowering/lowering.h"
#include "models/onnx/read/constants.h"
#include "runtime/graph/ops/row_norm.h"

namespace lockstep::onnx {
namespace {

// Matches an RMS norm that is written node by node, x / sqrt(mean(x^2) + epsilon) * gain over the
// last axis. The match begins at its last node and goes backwards.
class RmsNorm {
 public:
  RmsNorm(const Readers& readers, const Node& last) : readers_(readers), last_(last) {}

  // If the node is the last one of an RMS norm, replaces all its nodes by the native op.
  void fuse(FusionPlan& plan) {
    if (!is_op(&last_, "Mul")) return;
    for (const auto& [gain, normed] : orders(last_)) {
      nodes_.clear();
      gain_ = readers_.source_of(gain).value;
      if (gain_ < 0 || readers_.only_reader(gain) != &last_ || !find_quotient(normed)) continue;
      const Extents& extents = readers_.value(x_).extents;
      if (extents.empty() || readers_.value(gain_).extents != Extents{extents.back()}) continue;
      for (const Node* node : nodes_) plan.mark_fused(*node);
      plan.replace(
          last_, [x = x_, gain = gain_, epsilon = epsilon_](Lowering& lowering, const Node& node) {
            const auto [sum, y] = ops::rms_norm(lowering.builder(),
                                                lowering.name_of(node),
                                                lowering.layouts().plain(x),
                                                kNoTensor,
                                                lowering.parameters().unshared(gain),
                                                epsilon);
            lowering.layouts().set(node.output(0), y);
          });
      return;
    }
  }

 private:
  static std::array<std::pair<int, int>, 2> orders(const Node& node) {
    return {std::pair(node.input(0), node.input(1)), std::pair(node.input(1), node.input(0))};
  }

  // The node that computes the value, if it is this op and only `reader` reads the value; else
  // null.
  const Node* peek(const Node& reader, int number, const char* op) const {
    const Node* const node = readers_.producer(number);
    return is_op(node, op) && readers_.only_reader(number) == &reader ? node : nullptr;
  }
  // The same, and adds the node to the match.
  const Node* step(const Node& reader, int number, const char* op) {
    const Node* const node = peek(reader, number, op);
    if (node != nullptr) nodes_.push_back(node);
    return node;
  }

  std::optional<float> number(int value) const { return number_of(readers_.origin(value)); }

  // Matches x / root, or x times 1 / root.
  bool find_quotient(int normed) {
    if (const Node* const quotient = step(last_, normed, "Div"))
      return find_root(*quotient, quotient->input(0), quotient->input(1));
    const Node* const product = step(last_, normed, "Mul");
    if (product == nullptr) return false;
    for (const auto& [x, inverse] : orders(*product)) {
      if (const Node* const reciprocal = step(*product, inverse, "Reciprocal"))
        return find_root(*reciprocal, x, reciprocal->input(0));
      const Node* const one = peek(*product, inverse, "Div");
      if (one == nullptr || number(one->input(0)) != 1) continue;
      nodes_.push_back(one);
      return find_root(*one, x, one->input(1));
    }
    return false;
  }

  // Matches sqrt(mean(x^2) + epsilon).
  bool find_root(const Node& reader, int x, int root) {
    x_ = readers_.origin_of(x);
    const Node* const square_root = step(reader, root, "Sqrt");
    const Node* const sum =
        square_root == nullptr ? nullptr : step(*square_root, square_root->input(0), "Add");
    if (sum == nullptr) return false;
    for (const auto& [mean, epsilon] : orders(*sum)) {
      const std::optional<float> known = number(epsilon);
      if (!known) continue;
      epsilon_ = *known;
      const Node* const reduction = step(*sum, mean, "ReduceMean");
      return reduction != nullptr && is_of_last_axis(*reduction) && is_square(*reduction);
    }
    return false;
  }

  bool is_of_last_axis(const Node& reduction) const {
    std::vector<int64_t> axes = reduction.integers("axes");
    if (reduction.input(1) >= 0) {
      const Value& given = readers_.origin(reduction.input(1));
      if (given.kind != ValueKind::kConstant) return false;
      axes = given.array.as_int64();
    }
    const auto rank = static_cast<int64_t>(readers_.value(x_).extents.size());
    return reduction.integer("keepdims", 1) != 0 && axes.size() == 1 &&
           (axes[0] == -1 || axes[0] == rank - 1);
  }

  bool is_square(const Node& reduction) {
    if (const Node* const power = step(reduction, reduction.input(0), "Pow"))
      return readers_.origin_of(power->input(0)) == x_ && number(power->input(1)) == 2;
    const Node* const product = step(reduction, reduction.input(0), "Mul");
    return product != nullptr && readers_.origin_of(product->input(0)) == x_ &&
           readers_.origin_of(product->input(1)) == x_;
  }

  const Readers& readers_;
  const Node& last_;
  int x_ = -1, gain_ = -1;
  float epsilon_ = 0;
  std::vector<const Node*> nodes_;  // all nodes of the match but the last one
};

}  // namespace

void fuse_nodes(const Readers& readers, FusionPlan& plan) {
  for (const Node& node : readers.network().nodes) RmsNorm(readers, node).fuse(plan);
}

}  // namespace lockstep::onnx
