// Attention and what is done to the heads of q and k before it.
//
// A token of the packed qkv (N, T, P) has H heads of q, then K heads of k and of v, of D elements
// each. Before opset 23 attention is products and a softmax:
//
//   y = softmax(q k^T / sqrt(D) + mask) v,   q, k and v (N, H, T, D)
//
// With grouped queries each head of k and v is repeated H / K times. The mask is the lowest float
// where a query must not see a key, and 0 elsewhere: (T, T) for later tokens and those outside a
// window, the same for all layers, and (N, 1, 1, T) for padding.
#include <cmath>
#include <limits>

#include "models/onnx/from_graph/op_rows.h"
#include "models/onnx/schema/onnx.pb.h"
#include "runtime/graph/ops/attention.h"
#include "runtime/graph/ops/qk_norm.h"
#include "runtime/graph/ops/rotary.h"

namespace lockstep::onnx {
namespace {

using namespace graph;
using IntegerList = std::vector<int64_t>;

constexpr auto kHidden = static_cast<double>(std::numeric_limits<float>::lowest());

std::string reshaped(GraphWriter& writer, const std::string& x, const IntegerList& extents) {
  return writer.node("Reshape", {x, writer.integers(extents)});
}
std::string transposed(GraphWriter& writer, const std::string& x, const IntegerList& permutation) {
  return writer.node("Transpose", {x}, {{"perm", permutation}});
}

// (T, T): 0 where a query sees a key.
std::string mask_of_distances(GraphWriter& writer, TensorId qkv, const AttentionShape& shape) {
  const std::string positions = writer.positions(qkv, 1);
  const std::string key = fmt::format("mask {} {} {}", positions, shape.causal, shape.window);
  return writer.shared(key, [&] {
    const std::string queries = writer.node("Unsqueeze", {positions, writer.integers({1})});
    const std::string before = writer.node("Sub", {queries, positions});  // how far back a key is
    std::string hidden;
    const auto hide = [&](const std::string& those) {
      hidden = hidden.empty() ? those : writer.node("Or", {hidden, those});
    };
    if (shape.causal) hide(writer.node("Less", {before, writer.integer(0)}));
    if (shape.window > 0) {
      hide(writer.node("GreaterOrEqual", {before, writer.integer(shape.window)}));
      if (!shape.causal) hide(writer.node("LessOrEqual", {before, writer.integer(-shape.window)}));
    }
    return writer.node("Where", {hidden, writer.number(kHidden), writer.number(0)});
  });
}

// (N, 1, 1, T): 0 where a key is no padding.
std::string mask_of_padding(GraphWriter& writer, TensorId documents) {
  const std::string attended = writer.plain(documents);
  return writer.shared("mask " + attended, [&] {
    const std::string floats =
        writer.node("Cast", {attended}, {{"to", int64_t{schema::TensorProto::FLOAT}}});
    const std::string padding = writer.node("Sub", {writer.number(1), floats});
    const std::string mask = writer.node("Mul", {padding, writer.number(kHidden)});
    return writer.node("Unsqueeze", {mask, writer.integers({1, 2})});
  });
}

// (N, T, heads D) -> (N, heads, T, D)
std::string heads_of(GraphWriter& writer, const std::string& x, int64_t heads, int64_t size) {
  return transposed(writer, reshaped(writer, x, {0, 0, heads, size}), {0, 2, 1, 3});
}

// (N, K, T, D) -> (N, H, T, D): each head `times` times in a row.
std::string repeated_heads(GraphWriter& writer, const std::string& x, const AttentionShape& shape) {
  const int64_t times = shape.group();
  if (times == 1) return x;
  const std::string apart = writer.node("Unsqueeze", {x, writer.integers({2})});
  const std::string repeated = writer.node("Expand", {apart, writer.integers({1, 1, times, 1, 1})});
  return reshaped(writer, repeated, {0, shape.heads, -1, shape.head_size});
}

void write_attention(GraphWriter& writer, const Op& op) {
  const TensorId qkv = op.inputs[AttentionIn::kQkv], documents = op.inputs[AttentionIn::kDocuments];
  const AttentionShape shape = AttentionShape::of(writer.shape(qkv), op.as<AttentionAttributes>());
  if (shape.padding_sees) writer.refuse("attention of padding");
  const Names parts =
      writer.split(writer.plain(qkv), 2, {shape.width(), shape.kv_width(), shape.kv_width()});
  const std::string q = heads_of(writer, parts[0], shape.heads, shape.head_size);
  const auto of_group = [&](const std::string& part) {
    return repeated_heads(writer, heads_of(writer, part, shape.kv_heads, shape.head_size), shape);
  };
  const std::string k = transposed(writer, of_group(parts[1]), {0, 1, 3, 2});
  const std::string v = of_group(parts[2]);
  const double scale = 1 / std::sqrt(static_cast<double>(shape.head_size));
  std::string scores = writer.node("Mul", {writer.node("MatMul", {q, k}), writer.number(scale)});
  Names masks;
  if (shape.causal || shape.window > 0) masks.push_back(mask_of_distances(writer, qkv, shape));
  if (documents != kNoTensor) masks.push_back(mask_of_padding(writer, documents));
  for (const std::string& mask : masks) scores = writer.node("Add", {scores, mask});
  const std::string probabilities = writer.node("Softmax", {scores}, {{"axis", int64_t{-1}}});
  const std::string mixed =
      transposed(writer, writer.node("MatMul", {probabilities, v}), {0, 2, 1, 3});
  writer.set(op.outputs[AttentionOut::kY], reshaped(writer, mixed, {0, 0, shape.width()}));
}

void write_qk_norm(GraphWriter& writer, const Op& op) {
  const auto& norm = op.as<QkNormAttributes>();
  const QkNormSizes sizes = QkNormSizes::of(writer.shape(op.inputs[QkNormIn::kX]), norm);
  const int64_t q = norm.heads * sizes.head_size, k = norm.kv_heads * sizes.head_size;
  const Names parts = writer.split(writer.plain(op.inputs[QkNormIn::kX]), 2, {q, k, k});
  const auto normed = [&](const std::string& part, int64_t heads, QkNormIn gamma) {
    const std::string apart = reshaped(writer, part, {0, 0, heads, sizes.head_size});
    const std::string y = rms_normed(writer, apart, writer.plain(op.inputs[gamma]), norm.epsilon);
    return reshaped(writer, y, {0, 0, heads * sizes.head_size});
  };
  writer.set(op.outputs[QkNormOut::kY],
             writer.node("Concat",
                         {normed(parts[0], norm.heads, QkNormIn::kGammaQ),
                          normed(parts[1], norm.kv_heads, QkNormIn::kGammaK),
                          parts[2]},
                         {{"axis", int64_t{2}}}));
}

// The cosines and sines of all positions of the context, (T, pairs) each, as the op's own tables.
struct RotaryTables {
  std::string cosines, sines;
};
RotaryTables tables_of(GraphWriter& writer, const RotaryAttributes& rotary, TensorId x) {
  const int64_t tokens = writer.shape(x)[1], pairs = rotary.rotary_size / 2;
  const auto table = [&](const char* name, double (*function)(double)) {
    std::string key = fmt::format("{} {} {}", name, tokens, pairs);
    std::vector<double> frequencies;
    for (int64_t pair = 0; pair < pairs; ++pair) {
      frequencies.push_back(rotary_frequency(rotary, tokens, pair));
      key += fmt::format(" {}", frequencies.back());
    }
    return writer.shared(key, [&] {
      std::vector<float> elements;
      for (int64_t position = 0; position < tokens; ++position)
        for (const double frequency : frequencies)
          elements.push_back(
              static_cast<float>(function(static_cast<double>(position) * frequency)));
      const std::string all = writer.numbers({tokens, pairs}, elements);
      const std::string first = writer.node(
          "Slice", {all, writer.integers({0}), writer.length(x, 1), writer.integers({0})});
      return writer.node("Unsqueeze", {first, writer.integers({1})});  // (T, 1, pairs)
    });
  };
  return {table("cosines", std::cos), table("sines", std::sin)};
}

// x (N, T, heads, rotary size): pairs (a, b) become (a cos - b sin, a sin + b cos). Interleaved
// pairs lie beside each other; otherwise a is the first half and b the second.
std::string rotated(GraphWriter& writer,
                    const std::string& x,
                    const RotaryAttributes& rotary,
                    int64_t heads,
                    RotaryTables tables) {
  const int64_t pairs = rotary.rotary_size / 2;
  Names parts;
  if (rotary.interleaved) {
    parts = writer.split(reshaped(writer, x, {0, 0, heads, pairs, 2}), 4, {1, 1});
    for (std::string* table : {&tables.cosines, &tables.sines})
      *table = writer.node("Unsqueeze", {*table, writer.integers({3})});
  } else {
    parts = writer.split(x, 3, {pairs, pairs});
  }
  const auto times = [&](const std::string& part, const std::string& table) {
    return writer.node("Mul", {part, table});
  };
  const std::string a =
      writer.node("Sub", {times(parts[0], tables.cosines), times(parts[1], tables.sines)});
  const std::string b =
      writer.node("Add", {times(parts[0], tables.sines), times(parts[1], tables.cosines)});
  const std::string y = writer.node("Concat", {a, b}, {{"axis", int64_t{-1}}});
  return rotary.interleaved ? reshaped(writer, y, {0, 0, heads, rotary.rotary_size}) : y;
}

void write_rotary(GraphWriter& writer, const Op& op) {
  const auto& rotary = op.as<RotaryAttributes>();
  const TensorId x = op.inputs[RotaryIn::kX];
  if (op.inputs[RotaryIn::kPositions] != kNoTensor) writer.refuse("packed documents");
  if (writer.shape(x).rank() != 3) writer.refuse("an input with other axes than (N, T, W)");
  const int64_t heads = rotary.rotated_heads, size = rotary.head_size,
                rest = writer.shape(x).columns() - heads * size, kept = size - rotary.rotary_size;
  const RotaryTables tables = tables_of(writer, rotary, x);
  Names parts = {writer.plain(x)};
  if (rest > 0) parts = writer.split(parts[0], 2, {heads * size, rest});
  Names of_head = {reshaped(writer, parts[0], {0, 0, heads, size})};
  if (kept > 0) of_head = writer.split(of_head[0], 3, {rotary.rotary_size, kept});
  of_head[0] = rotated(writer, of_head[0], rotary, heads, tables);
  const auto joined = [&](const Names& names, int64_t axis) {
    return names.size() == 1 ? names[0] : writer.node("Concat", names, {{"axis", axis}});
  };
  parts[0] = reshaped(writer, joined(of_head, 3), {0, 0, heads * size});
  writer.set(op.outputs[RotaryOut::kY], joined(parts, 2));
}

constexpr OpRow kRows[] = {
    {OpKind::kAttention, write_attention},
    {OpKind::kQkNorm, write_qk_norm},
    {OpKind::kRotary, write_rotary},
};

}  // namespace

std::span<const OpRow> attention_rows() { return kRows; }

}  // namespace lockstep::onnx
