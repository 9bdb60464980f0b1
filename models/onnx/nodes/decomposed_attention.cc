// Recognises attention that exporters decompose, and lowers it to one native op. They do so before
// opset 23, and with dropout in every opset (parts in brackets are optional):
//
//   MatMul(q, k^T) [Mul or Div by a number] [Add(mask) or Where(mask)] Softmax
//       [IsNaN and Where: zeros for NaN] [Dropout] MatMul(., v)
//
// The match begins at the first MatMul and goes forward: `value_` is the current value, and each
// step takes the node that reads it and advances. The native op keeps none of the intermediate
// values, so each must have exactly one reader and must not be an output (Readers::only_reader).
// The zeros for NaN are the exception: IsNaN and Where both read the softmax. What else must hold
// for the native op to compute the same:
//
//   - q and v are (B, H, T, D) and k^T is (B, H, D, T): self-attention with as many key heads as
//     query heads;
//   - the scale is a constant. The native op multiplies by 1 / sqrt(D), so q is multiplied by the
//     rest;
//   - the mask provably hides nothing, padding, later tokens, or both (TokenMasks, token_mask.cc);
//   - the softmax is over the last axis, and the dropout's ratio is a constant and its mask unused;
//   - v does not depend on the product itself. It may be computed by nodes that come later in the
//     file: lower_early() lowers these first.
//
// If anything fails, nothing has been changed, and the nodes are lowered one by one.
#include <cmath>
#include <optional>

#include "models/onnx/nodes/attention.h"
#include "models/onnx/read/constants.h"
#include "runtime/graph/ops/pointwise.h"

namespace lockstep::onnx {
namespace {

// The value of a constant with one element.
std::optional<float> constant_of(const Readers& readers, int value) {
  return number_of(readers.origin(value));
}

// The constant factor, if the value is computed by a multiplication with one.
std::optional<float> factor_of(const Readers& readers, int value) {
  const Node* const times = readers.producer(value);
  if (!is_op(times, "Mul")) return std::nullopt;
  const auto first = constant_of(readers, times->input(0));
  return first ? first : constant_of(readers, times->input(1));
}

// The match, beginning at the product of q and k.
class DecomposedAttention {
 public:
  DecomposedAttention(Lowering& lowering, const Node& product)
      : lowering_(lowering),
        readers_(lowering.readers()),
        product_(product),
        value_(product.output(0)) {}

  // Whether the pattern matches; only then the other methods may be called.
  bool matches() {
    if (!has_heads(product_.input(0)) || !has_heads(product_.input(1))) return false;
    const Extents& q = extents(product_.input(0));
    if (extents(product_.input(1)) != Extents{q[0], q[1], q[3], q[2]}) return false;
    take_scale();
    if (!take_mask()) return false;
    const Node* softmax = reader("Softmax");
    if (softmax == nullptr || !is_over_the_last_axis(*softmax)) return false;
    take(*softmax);
    take_zeros_for_nan();
    if (!take_dropout()) return false;
    const Node* last = reader("MatMul");
    if (last == nullptr || readers_.origin_of(last->input(0)) != value_) return false;
    v_ = last->input(1);
    take(*last);
    return has_heads(v_) && extents(v_) == q;
  }

  int q() const { return product_.input(0); }
  int transposed_k() const { return product_.input(1); }
  int v() const { return v_; }
  int output() const { return value_; }
  // The factor in addition to the op's 1 / sqrt(D).
  float scale() const {
    return scale_ * std::sqrt(static_cast<float>(extents(product_.input(0))[3]));
  }
  const MaskForm& mask() const { return mask_; }
  float dropout() const { return dropout_; }
  const std::vector<const Node*>& nodes() const { return nodes_; }

 private:
  const Extents& extents(int number) const { return readers_.value(number).extents; }
  bool has_heads(int number) const { return extents(number).size() == 4; }

  // The only reader of the current value, if it is this op.
  const Node* reader(const char* op) const {
    const Node* found = readers_.only_reader(value_);
    return is_op(found, op) ? found : nullptr;
  }
  void take(const Node& node) {
    nodes_.push_back(&node);
    value_ = node.output(0);
  }
  std::optional<float> number(int value) const { return constant_of(readers_, value); }
  int other(const Node& node) const { return readers_.other_input(node, value_); }

  void take_scale() {
    const Node* times = reader("Mul");
    const Node* over = reader("Div");
    if (times != nullptr) {
      if (const auto factor = number(other(*times))) {
        scale_ = *factor;
        take(*times);
      }
    } else if (over != nullptr && readers_.origin_of(over->input(0)) == value_) {
      if (const auto divisor = number(over->input(1))) {
        scale_ = 1 / *divisor;
        take(*over);
      }
    }
  }

  // Returns false if there is a mask that the native op does not support.
  bool take_mask() {
    mask_.known = true;
    const Node* added = reader("Add");
    const Node* chosen = reader("Where");
    const Node* const masks = added != nullptr ? added : chosen;
    if (masks == nullptr) return true;
    if (extents(masks->output(0)) != extents(value_)) return false;
    if (added != nullptr) {
      mask_ = lowering_.mask_form(other(*added));
    } else {
      const bool true_hides = readers_.origin_of(chosen->input(2)) == value_;
      const auto hidden = number(chosen->input(true_hides ? 1 : 2));
      if (!hidden || !(*hidden <= kForgotten)) return false;
      mask_ = lowering_.mask_form(chosen->input(0), true_hides);
    }
    take(*masks);
    return mask_.known;
  }

  // The nodes can be skipped, because the native op returns 0 for a row that sees nothing.
  void take_zeros_for_nan() {
    const auto [test, choice] = zeros_for_nan(readers_, value_);
    if (test == nullptr) return;
    nodes_.push_back(test);
    take(*choice);
  }

  bool is_over_the_last_axis(const Node& softmax) const {
    const int64_t axis = softmax.integer("axis", softmax.opset < 13 ? 1 : -1);
    return axis == -1 || axis == 3;
  }

  // Returns false if there is a dropout whose ratio is not a constant, or whose mask is used.
  bool take_dropout() {
    const Node* dropout = reader("Dropout");
    if (dropout == nullptr) return true;
    if (dropout->output(1) >= 0 && lowering_.fusion().is_read(dropout->output(1))) return false;
    dropout_ = dropout->number("ratio", 0.5f);
    if (dropout->input(1) >= 0) {
      const auto ratio = number(dropout->input(1));
      if (!ratio) return false;
      dropout_ = *ratio;
    }
    take(*dropout);
    return dropout_ >= 0 && dropout_ < 1;
  }

  Lowering& lowering_;
  const Readers& readers_;
  const Node& product_;
  int value_, v_ = -1;
  float scale_ = 1;
  MaskForm mask_;
  float dropout_ = 0;
  std::vector<const Node*> nodes_;
};

}  // namespace

ZerosForNan zeros_for_nan(const Readers& readers, int value) {
  const std::vector<const Node*>& nodes = readers.readers_of(value);
  if (nodes.size() != 2 || readers.is_output(value)) return {};
  const bool first = is_op(nodes[0], "IsNaN");
  const Node *const test = nodes[first ? 0 : 1], *const choice = nodes[first ? 1 : 0];
  if (!is_op(test, "IsNaN") || !is_op(choice, "Where") ||
      readers.only_reader(test->output(0)) != choice ||
      readers.origin_of(choice->input(0)) != test->output(0) ||
      constant_of(readers, choice->input(1)) != 0 || readers.origin_of(choice->input(2)) != value)
    return {};
  return {test, choice};
}

TorchScores torch_scores(const Readers& readers, const Node& softmax) {
  const Node* const masked = readers.producer(softmax.input(0));
  if (!is_op(masked, "Add")) return {};
  for (const size_t index : {0, 1}) {
    const Node* const product = readers.producer(masked->input(index));
    if (!is_op(product, "MatMul")) continue;
    const auto q_factor = factor_of(readers, product->input(0));
    if (q_factor && q_factor == factor_of(readers, product->input(1)))
      return {masked->input(index), masked->input(1 - index)};
  }
  return {};
}

bool lower_decomposed_attention(Lowering& lowering, const Node& product) {
  DecomposedAttention found(lowering, product);
  if (!found.matches() || !lowering.lower_early(found.v(), product)) return false;
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(product);
  TensorId q = in_order(lowering, found.q(), {0, 2, 1, 3});
  constexpr float kTolerance = 1e-6f;
  if (std::abs(found.scale() - 1) > kTolerance) {
    graph::PointwiseProgram scaled;
    const int x = scaled.input(0);
    scaled.append(graph::PointwiseFunction::kMul, x, scaled.constant(found.scale()));
    q = ops::pointwise(builder, name + ".scaled", {q}, scaled);
  }
  const TensorId y = append_self_attention(lowering,
                                           name,
                                           {q,
                                            in_order(lowering, found.transposed_k(), {0, 3, 1, 2}),
                                            in_order(lowering, found.v(), {0, 2, 1, 3})},
                                           found.mask(),
                                           found.dropout());
  for (const Node* node : found.nodes()) lowering.fusion().mark_fused(*node);
  lowering.layouts().set_transposed(found.output(), y, {0, 2, 1, 3});
  return true;
}

}  // namespace lockstep::onnx
