// The ops Attention and RotaryEmbedding.
#include "models/onnx/nodes/attention.h"
#include "models/onnx/nodes/operands.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/onnx/nodes/node_type.h"
#include "runtime/graph/ops/attention.h"
#include "runtime/graph/ops/batched_matmul.h"
#include "runtime/graph/ops/concat.h"
#include "runtime/graph/ops/gather.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/softmax.h"

namespace lockstep::onnx {
namespace {

// The extents of a query, key or value, which is (batch, heads, length, size) or
// (batch, length, heads * size).
struct Heads {
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t length = 0;
  int64_t size = 0;
};

Heads heads_of(const NodeView& node, size_t index, const char* attribute) {
  node.require_rank(index, 3, 4);
  node.require_floating(index);
  const Extents& e = node.extents(index);
  if (e.size() == 4) return {e[0], e[1], e[2], e[3]};
  const int64_t heads = node.integer(attribute, 0, 0);
  if (heads == 0 || e[2] % heads != 0)
    node.refuse(
        "attribute {} is {}; must divide the last axis of {}", attribute, heads, to_string(e));
  return {e[0], heads, e[1], e[2] / heads};
}

// The mask must be broadcastable to (batch, heads, queries, keys). It may cover fewer keys.
void require_mask(const NodeView& node, const Heads& query, int64_t keys) {
  node.require_rank(3, 1, 4);
  if (node.type(3) != ElementType::kBool) node.require_floating(3);
  const Extents& mask = node.extents(3);
  const Extents scores = {query.batch, query.heads, query.length, keys};
  bool good = mask.back() >= 1 && mask.back() <= keys;
  for (size_t i = 2; i <= mask.size(); ++i) {
    const int64_t extent = mask[mask.size() - i];
    good &= extent == 1 || extent == scores[4 - i];
  }
  if (!good)
    node.refuse(
        "its mask has extents {}; each must be that of the scores {} or 1; the last may be smaller",
        to_string(mask),
        to_string(scores));
}

// Outputs: the result, keys and values including the past ones, the scores.
std::vector<Form> rule_attention(const NodeView& node) {
  node.require_inputs(3, 7);
  const Heads query = heads_of(node, 0, "q_num_heads");
  const Heads key = heads_of(node, 1, "kv_num_heads");
  const Heads value = heads_of(node, 2, "kv_num_heads");
  if (query.batch != key.batch || query.batch != value.batch || query.size != key.size ||
      key.length != value.length || key.heads != value.heads)
    node.refuse("query, key and value have extents {}, {} and {}, which do not match",
                to_string(node.extents(0)),
                to_string(node.extents(1)),
                to_string(node.extents(2)));
  if (key.heads == 0 || query.heads % key.heads != 0)
    node.refuse(
        "has {} query heads; must be a multiple of its {} key heads", query.heads, key.heads);
  int64_t length = key.length;
  if (node.has(4) != node.has(5))
    node.refuse("has either past keys or past values; must have both or none");
  if (node.has(4)) {
    node.require_rank(4, 4, 4);
    const int64_t past = node.extents(4)[2];
    node.require_extents(4, {key.batch, key.heads, past, key.size});
    node.require_extents(5, {key.batch, key.heads, past, value.size});
    length += past;
  }
  if (node.has(3)) require_mask(node, query, length);
  if (node.has(6)) node.require_extents(6, {query.batch});
  const ElementType type = node.type(0);
  Form output{type, {query.batch, query.heads, query.length, value.size}};
  if (node.rank(0) == 3) output.extents = {query.batch, query.length, query.heads * value.size};
  return {output,
          {node.type(1), {key.batch, key.heads, length, key.size}},
          {node.type(2), {value.batch, value.heads, length, value.size}},
          {type, {query.batch, query.heads, query.length, length}}};
}

std::vector<Form> rule_rotary(const NodeView& node) {
  node.require_inputs(3, 4);
  const Heads x = heads_of(node, 0, "num_heads");
  node.require_same_type(0, 1);
  node.require_same_type(0, 2);
  if (node.extents(1) != node.extents(2))
    node.refuse("cosines and sines have extents {} and {}; must be equal",
                to_string(node.extents(1)),
                to_string(node.extents(2)));
  const int64_t turned = node.integer("rotary_embedding_dim", 0, 0, x.size);
  const int64_t pairs = (turned == 0 ? x.size : turned) / 2;
  if (node.has(3)) {
    node.require_rank(1, 2, 2);
    node.require_integers(3);
    node.require_extents(3, {x.batch, x.length});
    node.require_extents(1, {node.extents(1)[0], pairs});
  } else {
    node.require_extents(1, {x.batch, x.length, pairs});
  }
  return {node.form(0)};
}

using F = graph::PointwiseFunction;

const std::vector<int> kHeadsAndTokens = {0, 2, 1, 3};  // swaps (B, T, H, D) and (B, H, T, D)

}  // namespace

TensorId in_order(Lowering& lowering, int number, const std::vector<int>& order) {
  const auto [tensor, permutation] = lowering.layouts().physical_layout(number);
  std::vector<int> composed;
  for (const int axis : order) composed.push_back(permutation[static_cast<size_t>(axis)]);
  if (std::ranges::is_sorted(composed)) return tensor;
  return ops::transpose(
      lowering.builder(), lowering.value(number).name + ".ordered", tensor, composed);
}

TensorId append_self_attention(Lowering& lowering,
                               const std::string& name,
                               const std::vector<TensorId>& by_tokens,
                               const MaskForm& mask,
                               float dropout) {
  graph::GraphBuilder& builder = lowering.builder();
  std::vector<TensorId> parts;
  for (const TensorId part : by_tokens) {
    const Shape shape = builder.shape(part);
    parts.push_back(
        ops::reshape(builder, name + ".rows", part, {shape[0], shape[1], shape[2] * shape[3]}));
  }
  const Shape q = builder.shape(by_tokens[0]);
  graph::AttentionAttributes attributes;
  attributes.heads = q[2];
  attributes.kv_heads = builder.shape(by_tokens[1])[2];
  attributes.causal = mask.causal;
  // A file's mask hides padding, but padding sees all tokens.
  attributes.padding_sees = mask.padding;
  attributes.dropout = builder.training() ? dropout : 0;
  const TensorId qkv = ops::concat(builder, name + ".qkv", parts, 2);
  const TensorId y = ops::attention(
      builder, name, qkv, attributes, mask.padding ? lowering.seen_tokens() : kNoTensor);
  return ops::reshape(builder, name + ".heads", y, q);
}

namespace {

// A value (B, H, T, D), or (B, T, H D), as (B, T, H, D).
TensorId by_tokens(Lowering& lowering, int number, int64_t heads) {
  const Extents& extents = lowering.value(number).extents;
  if (extents.size() == 4) return in_order(lowering, number, kHeadsAndTokens);
  return ops::reshape(lowering.builder(),
                      lowering.value(number).name + ".heads",
                      lowering.layouts().plain(number),
                      {extents[0], extents[1], heads, extents[2] / heads});
}

// The same value as (B, H, T, D).
TensorId by_heads(Lowering& lowering, int number, int64_t heads) {
  if (lowering.value(number).extents.size() == 4) return lowering.layouts().plain(number);
  return ops::transpose(lowering.builder(),
                        lowering.value(number).name + ".by_head",
                        by_tokens(lowering, number, heads),
                        kHeadsAndTokens);
}

// Sets the node's output, which has as many axes as its input, to x (B, T, H, D).
void set_by_tokens(Lowering& lowering, const Node& node, TensorId x) {
  const Shape shape = shape_of(lowering.value(node.output(0)));
  if (shape.rank() == 4)
    return lowering.layouts().set_transposed(node.output(0), x, kHeadsAndTokens);
  set_output(
      lowering, node, ops::reshape(lowering.builder(), lowering.name_of(node) + ".rows", x, shape));
}

class AttentionLowering {
 public:
  AttentionLowering(Lowering& lowering, const Node& node)
      : lowering_(lowering),
        builder_(lowering.builder()),
        node_(node),
        name_(lowering.name_of(node)),
        q_(heads_of(lowering.readers().view(node), 0, "q_num_heads")),
        k_(heads_of(lowering.readers().view(node), 1, "kv_num_heads")),
        v_(heads_of(lowering.readers().view(node), 2, "kv_num_heads")),
        softcap_(node.number("softcap", 0)),
        causal_(node.integer("is_causal", 0) != 0),
        masked_(node.input(3) >= 0) {
    if (node.input(6) >= 0) refuse(node, "nonpad_kv_seqlen: is not supported");
    shape_of(lowering.value(node.input(0)));  // throws if the input is empty
    scale_ = node.number("scale", usual_scale());
    fused_ = {.known = !masked_, .causal = causal_};
    if (!masked_ || node.input(4) >= 0) return;  // past keys shift the diagonal of a causal mask
    const Extents& mask = lowering.value(node.input(3)).extents;
    // Keys that a short mask does not cover are hidden, so the mask must cover all keys here.
    const MaskForm form = lowering.mask_form(node.input(3));
    if (!form.known || mask.back() != k_.length ||
        (form.causal && mask[mask.size() - 2] != q_.length))
      return;
    masked_ = form.padding;
    causal_ |= form.causal;
    fused_ = {.known = true, .causal = causal_, .padding = form.padding};
  }

  void run() {
    if (is_plain_self_attention())
      run_fused();
    else
      run_in_steps();
  }

 private:
  float usual_scale() const { return 1 / std::sqrt(static_cast<float>(q_.size)); }
  bool is_read(size_t output) const {
    return node_.output(output) >= 0 && lowering_.readers().has_reader(node_.output(output));
  }

  bool is_plain_self_attention() const {
    return fused_.known && node_.input(4) < 0 && node_.input(5) < 0 && softcap_ == 0 &&
           q_.length == k_.length && v_.size == q_.size &&
           std::abs(scale_ - usual_scale()) <= 1e-6f * usual_scale() && !is_read(1) &&
           !is_read(2) && !is_read(3);
  }

  void run_fused() {
    set_by_tokens(lowering_,
                  node_,
                  append_self_attention(lowering_,
                                        name_,
                                        {by_tokens(lowering_, node_.input(0), q_.heads),
                                         by_tokens(lowering_, node_.input(1), k_.heads),
                                         by_tokens(lowering_, node_.input(2), k_.heads)},
                                        fused_,
                                        /*dropout=*/0));
  }

  // The keys or values, with the past ones in front, if there are any.
  TensorId with_past(size_t index, size_t past, size_t present) {
    TensorId x = by_heads(lowering_, node_.input(index), k_.heads);
    if (node_.input(past) >= 0)
      x = ops::concat(builder_,
                      name_ + ".present",
                      {input_of(lowering_, node_, past), x},
                      /*axis=*/2);
    if (node_.output(present) >= 0) lowering_.layouts().set(node_.output(present), x);
    return x;
  }

  // Grouped-query attention: splits the heads into (kv_heads, heads of a group).
  TensorId grouped(TensorId x) {
    const Shape shape = builder_.shape(x);
    if (q_.heads == k_.heads) return x;
    return ops::reshape(builder_,
                        name_ + ".groups",
                        x,
                        {shape[0], k_.heads, shape[1] / k_.heads, shape[2], shape[3]});
  }

  // The mask (B or 1, H or 1, T, S), with heads split into groups like the scores.
  TensorId mask(int64_t keys) {
    const Value& value = lowering_.value(node_.input(3));
    TensorId x = input_of(lowering_, node_, 3);
    Shape shape = builder_.shape(x);
    if (const int64_t missing = keys - shape.columns(); missing > 0) {
      std::vector<int64_t> none(static_cast<size_t>(shape.rank()), 0), after = none;
      after.back() = missing;
      const float hidden = is_floating(value.type) ? -std::numeric_limits<float>::infinity() : 0;
      x = ops::pad(builder_, name_ + ".mask", x, none, after, hidden);
      shape = builder_.shape(x);
    }
    if (q_.heads == k_.heads || shape.rank() < 3) return x;
    const int64_t batch = shape.rank() == 4 ? shape[0] : 1, heads = shape[shape.rank() - 3];
    const int64_t kv = heads == 1 ? 1 : k_.heads;
    return ops::reshape(builder_,
                        name_ + ".mask_groups",
                        x,
                        {batch, kv, heads / kv, shape[shape.rank() - 2], shape.columns()});
  }

  // A query sees its own key and earlier ones, and all `past` keys.
  TensorId causal_mask(int64_t queries, int64_t keys, int64_t past) {
    std::vector<float> seen;
    for (int64_t q = 0; q < queries; ++q)
      for (int64_t k = 0; k < keys; ++k) seen.push_back(k <= q + past ? 1.0f : 0.0f);
    return builder_.constant(name_ + ".causal", {queries, keys}, seen);
  }

  TensorId masked(TensorId scores, int64_t past) {
    const Shape shape = builder_.shape(scores);
    const int64_t keys = shape.columns(), queries = shape[shape.rank() - 2];
    graph::PointwiseProgram program;
    std::vector<TensorId> inputs = {scores};
    int x = program.input(0);
    if (softcap_ != 0) {
      const int cap = program.constant(softcap_);
      x = program.append(F::kMul, cap, program.append(F::kTanh, program.append(F::kDiv, x, cap)));
    }
    const int hidden = program.constant(-std::numeric_limits<float>::infinity());
    if (masked_) {
      const int operand = program.input(static_cast<int>(inputs.size()));
      inputs.push_back(mask(keys));
      x = is_floating(lowering_.value(node_.input(3)).type)
              ? program.append(F::kAdd, x, operand)
              : program.append(F::kWhere, operand, x, hidden);
    }
    if (causal_) {
      const int operand = program.input(static_cast<int>(inputs.size()));
      inputs.push_back(causal_mask(queries, keys, past));
      x = program.append(F::kWhere, operand, x, hidden);
    }
    program.set_result(x);
    if (softcap_ == 0 && inputs.size() == 1) return scores;
    return ops::pointwise(builder_, name_ + ".masked", inputs, program);
  }

  // Sets an output to the scores, without the axis for groups.
  void set_scores(size_t output, TensorId scores) {
    const Shape shape = shape_of(lowering_.value(node_.output(output)));
    lowering_.layouts().set(node_.output(output),
                            ops::reshape(builder_, name_ + ".scores", scores, shape));
  }

  void run_in_steps() {
    const TensorId q = grouped(by_heads(lowering_, node_.input(0), q_.heads));
    const TensorId k = grouped(with_past(1, 4, 1)), v = grouped(with_past(2, 5, 2));
    const int64_t past = node_.input(4) < 0 ? 0 : lowering_.value(node_.input(4)).extents[2];
    const TensorId scores =
        ops::batched_matmul(builder_, name_ + ".products", q, k, false, true, scale_);
    const TensorId shares = ops::softmax(
        builder_, name_ + ".softmax", masked(scores, past), graph::SoftmaxForm::kSharesOrZero);
    const int64_t mode = node_.integer("qk_matmul_output_mode", 0);
    if (is_read(3) && mode != 0 && mode != 3)
      refuse(node_, "qk_matmul_output_mode: value is {}; allowed: 0 or 3", mode);
    if (is_read(3)) set_scores(3, mode == 0 ? scores : shares);
    TensorId y = ops::batched_matmul(builder_, name_, shares, v, false, false, 1);
    const Shape shape = builder_.shape(y);
    const int64_t tokens = shape[shape.rank() - 2];
    y = ops::reshape(
        builder_, name_ + ".by_head", y, {shape[0], q_.heads, tokens, shape.columns()});
    if (lowering_.value(node_.output(0)).extents.size() == 4)
      return set_output(lowering_, node_, y);
    set_by_tokens(
        lowering_, node_, ops::transpose(builder_, name_ + ".tokens", y, kHeadsAndTokens));
  }

  Lowering& lowering_;
  graph::GraphBuilder& builder_;
  const Node& node_;
  std::string name_;
  const Heads q_, k_, v_;
  float softcap_, scale_ = 1;
  bool causal_, masked_;
  MaskForm fused_;  // the mask of the native op, if `known`
};

// Self-attention becomes one native op if its mask hides only padding, later tokens, or both.
// Otherwise it is lowered to products and a softmax.
void lower_attention(Lowering& lowering, const Node& node) {
  AttentionLowering(lowering, node).run();
}

// Rotates pairs: (a, b) becomes (a cos - b sin, a sin + b cos).
void lower_rotary_embedding(Lowering& lowering, const Node& node) {
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const TensorId x = by_tokens(lowering, node.input(0), node.integer("num_heads", 1));
  const Shape shape = builder.shape(x);
  const auto table = [&](size_t index) {
    TensorId rows = input_of(lowering, node, index);
    if (node.input(3) >= 0)
      rows = ops::gather(builder, name + ".table", rows, input_of(lowering, node, 3), 0);
    const Shape found = builder.shape(rows);
    return ops::reshape(builder, name + ".angles", rows, {found[0], found[1], 1, found[2]});
  };
  const TensorId cosines = table(1), sines = table(2);
  const int64_t pairs = builder.shape(cosines).columns(), rotated = 2 * pairs;
  const bool interleaved = node.integer("interleaved", 0) != 0;
  const auto part = [&](int64_t start, int64_t step, int64_t count) {
    return ops::slice(builder,
                      name + ".part",
                      x,
                      {0, 0, 0, start},
                      {1, 1, 1, step},
                      {shape[0], shape[1], shape[2], count});
  };
  const int64_t step = interleaved ? 2 : 1;
  const std::vector<TensorId> inputs = {
      part(0, step, pairs), part(interleaved ? 1 : pairs, step, pairs), cosines, sines};
  const auto rotate = [&](F function, int first, int second) {
    graph::PointwiseProgram program;
    const int a = program.append(F::kMul, program.input(0), program.input(first));
    const int b = program.append(F::kMul, program.input(1), program.input(second));
    program.append(function, a, b);
    return ops::pointwise(builder, name + ".turned", inputs, program);
  };
  std::vector<TensorId> parts = {rotate(F::kSub, 2, 3), rotate(F::kAdd, 3, 2)};
  if (interleaved) {
    for (TensorId& one : parts)
      one = ops::reshape(builder, name + ".pairs", one, {shape[0], shape[1], shape[2], pairs, 1});
    const TensorId both = ops::concat(builder, name + ".both", parts, -1);
    parts = {ops::reshape(
        builder, name + ".interleaved", both, {shape[0], shape[1], shape[2], rotated})};
  }
  if (rotated < shape[3]) parts.push_back(part(rotated, 1, shape[3] - rotated));
  set_by_tokens(
      lowering, node, parts.size() == 1 ? parts[0] : ops::concat(builder, name, parts, -1));
}

constexpr NodeType kNodes[] = {
    {"Attention", rule_attention, lower_attention},
    {"RotaryEmbedding", rule_rotary, lower_rotary_embedding},
};

}  // namespace

std::span<const NodeType> attention_nodes() { return kNodes; }

}  // namespace lockstep::onnx
