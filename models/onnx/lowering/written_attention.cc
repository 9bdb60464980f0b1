// Attention as exporters write it before opset 23, and with dropout in every opset:
//   MatMul(q, k^T) [Mul or Div by a number] [Add of a mask, or Where] Softmax [no NaN] [Dropout] MatMul(., v)
#include <algorithm>
#include <cmath>
#include <optional>

#include "models/onnx/constants.h"
#include "models/onnx/lowering/attention.h"
#include "runtime/graph/ops/pointwise.h"

namespace lockstep::onnx {
namespace {

// The constant number that a value is.
std::optional<float> constant_of(const Lowering& lowering, int value) {
  return number_of(lowering.value(lowering.origin_of(value)));
}

// The number by which the node that computes a value multiplies another one.
std::optional<float> factor_of(const Lowering& lowering, int value) {
  const Node* const times = lowering.producer(lowering.origin_of(value));
  if (!is_op(times, "Mul")) return std::nullopt;
  const auto first = constant_of(lowering, times->input(0));
  return first ? first : constant_of(lowering, times->input(1));
}

// Follows the only readers from the product of q and k on.
class WrittenAttention {
 public:
  WrittenAttention(Lowering& lowering, const Node& product)
      : lowering_(lowering), product_(product), value_(product.output(0)) {}

  // Whether it ends in a product with v; then the rest is known.
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
    if (last == nullptr || lowering_.origin_of(last->input(0)) != value_) return false;
    v_ = last->input(1);
    take(*last);
    return has_heads(v_) && extents(v_) == q;
  }

  int q() const { return product_.input(0); }
  int transposed_k() const { return product_.input(1); }
  int v() const { return v_; }
  int output() const { return value_; }
  // Beside 1 / sqrt(D), which the op has.
  float scale() const {
    return scale_ * std::sqrt(static_cast<float>(extents(product_.input(0))[3]));
  }
  const MaskForm& mask() const { return mask_; }
  float dropout() const { return dropout_; }
  const std::vector<const Node*>& nodes() const { return nodes_; }

 private:
  const Extents& extents(int number) const { return lowering_.value(number).extents; }
  bool has_heads(int number) const { return extents(number).size() == 4; }

  // The only reader of the value, where it is this op.
  const Node* reader(const char* op) const {
    const Node* found = lowering_.only_reader(value_);
    return is_op(found, op) ? found : nullptr;
  }
  void take(const Node& node) {
    nodes_.push_back(&node);
    value_ = node.output(0);
  }
  std::optional<float> number(int value) const { return constant_of(lowering_, value); }
  // The operand that is not the value.
  int other(const Node& node) const {
    return node.input(lowering_.origin_of(node.input(0)) == value_ ? 1 : 0);
  }

  void take_scale() {
    const Node* times = reader("Mul");
    const Node* over = reader("Div");
    if (times != nullptr) {
      if (const auto factor = number(other(*times))) {
        scale_ = *factor;
        take(*times);
      }
    } else if (over != nullptr && lowering_.origin_of(over->input(0)) == value_) {
      if (const auto divisor = number(over->input(1))) {
        scale_ = 1 / *divisor;
        take(*over);
      }
    }
  }

  // False where there is one that the op does not have.
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
      const bool true_hides = lowering_.origin_of(chosen->input(2)) == value_;
      const auto hidden = number(chosen->input(true_hides ? 1 : 2));
      if (!hidden || !(*hidden <= kForgotten)) return false;
      mask_ = lowering_.mask_form(chosen->input(0), true_hides);
    }
    take(*masks);
    return mask_.known;
  }

  // Of a row that sees nothing the op's result is 0 in any case.
  void take_zeros_for_nan() {
    const auto [test, choice] = zeros_for_nan(lowering_, value_);
    if (test == nullptr) return;
    nodes_.push_back(test);
    take(*choice);
  }

  bool is_over_the_last_axis(const Node& softmax) const {
    const int64_t axis = softmax.integer("axis", softmax.opset < 13 ? 1 : -1);
    return axis == -1 || axis == 3;
  }

  // False where its share is not known.
  bool take_dropout() {
    const Node* dropout = reader("Dropout");
    if (dropout == nullptr) return true;
    if (dropout->output(1) >= 0 && lowering_.is_read(dropout->output(1))) return false;
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
  const Node& product_;
  int value_, v_ = -1;
  float scale_ = 1;
  MaskForm mask_;
  float dropout_ = 0;
  std::vector<const Node*> nodes_;
};

}  // namespace

ZerosForNan zeros_for_nan(const Lowering& lowering, int value) {
  const std::vector<const Node*> readers = lowering.readers(value);
  if (readers.size() != 2 || lowering.is_output(value)) return {};
  const bool first = is_op(readers[0], "IsNaN");
  const Node *const test = readers[first ? 0 : 1], *const choice = readers[first ? 1 : 0];
  if (!is_op(test, "IsNaN") || !is_op(choice, "Where") ||
      lowering.only_reader(test->output(0)) != choice ||
      lowering.origin_of(choice->input(0)) != test->output(0) ||
      constant_of(lowering, choice->input(1)) != 0 || lowering.origin_of(choice->input(2)) != value)
    return {};
  return {test, choice};
}

TorchScores torch_scores(const Lowering& lowering, const Node& softmax) {
  const auto producer = [&](int value) { return lowering.producer(lowering.origin_of(value)); };
  const Node* const masked = producer(softmax.input(0));
  if (!is_op(masked, "Add")) return {};
  for (const size_t place : {0, 1}) {
    const Node* const product = producer(masked->input(place));
    if (!is_op(product, "MatMul")) continue;
    const auto of_q = factor_of(lowering, product->input(0));
    if (of_q && of_q == factor_of(lowering, product->input(1)))
      return {masked->input(place), masked->input(1 - place)};
  }
  return {};
}

bool lower_written_attention(Lowering& lowering, const Node& product) {
  WrittenAttention found(lowering, product);
  if (!found.matches() || !lowering.lower_ahead(found.v(), product)) return false;
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(product);
  TensorId q = in_order(lowering, found.q(), {0, 2, 1, 3});
  constexpr float kAlike = 1e-6f;
  if (std::abs(found.scale() - 1) > kAlike) {
    PointwiseProgram scaled;
    const int x = scaled.input(0);
    scaled.append(PointwiseFunction::kMul, x, scaled.constant(found.scale()));
    q = ops::pointwise(builder, name + ".scaled", {q}, scaled);
  }
  const TensorId y = append_self_attention(lowering,
                                           name,
                                           {q,
                                            in_order(lowering, found.transposed_k(), {0, 3, 1, 2}),
                                            in_order(lowering, found.v(), {0, 2, 1, 3})},
                                           found.mask(),
                                           found.dropout());
  for (const Node* node : found.nodes()) lowering.pass_over(*node);
  lowering.set_transposed(found.output(), y, {0, 2, 1, 3});
  return true;
}

}  // namespace lockstep::onnx
