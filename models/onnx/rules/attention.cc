// Attention and rotary position embedding. Rules only, no evaluators.

#include "models/onnx/rules/table.h"

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

void require_extents(const NodeView& node, size_t index, const Extents& expected) {
  if (node.extents(index) != expected)
    node.refuse("its input {} has extents {}; must have {}",
                index,
                to_string(node.extents(index)),
                to_string(expected));
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
    require_extents(node, 4, {key.batch, key.heads, past, key.size});
    require_extents(node, 5, {key.batch, key.heads, past, value.size});
    length += past;
  }
  if (node.has(3)) require_mask(node, query, length);
  if (node.has(6)) require_extents(node, 6, {query.batch});
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
    require_extents(node, 3, {x.batch, x.length});
    require_extents(node, 1, {node.extents(1)[0], pairs});
  } else {
    require_extents(node, 1, {x.batch, x.length, pairs});
  }
  return {node.form(0)};
}

constexpr Op kOps[] = {
    {"Attention", rule_attention},
    {"RotaryEmbedding", rule_rotary},
};

}  // namespace

std::span<const Op> attention_ops() { return kOps; }

}  // namespace lockstep::onnx
