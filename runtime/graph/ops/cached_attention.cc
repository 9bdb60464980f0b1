#include "runtime/graph/ops/cached_attention.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

TensorId ops::cached_attention(GraphBuilder& builder,
                               const std::string& name,
                               TensorId qkv,
                               TensorId documents,
                               TensorId positions,
                               TensorId cache,
                               const CachedAttentionAttributes& attributes) {
  const Shape packed = builder.shape(qkv), kept = builder.shape(cache);
  const int64_t parts = attributes.heads + 2 * attributes.kv_heads;
  LOCKSTEP_CHECK(!builder.training(), "{}: a cache is for inference ", name);
  LOCKSTEP_CHECK(attributes.heads % attributes.kv_heads == 0, "{}: heads ", name);
  LOCKSTEP_CHECK(attributes.window >= 0, "{}: window {} ", name, attributes.window);
  LOCKSTEP_CHECK(
      packed.rank() == 3 && packed[2] % parts == 0, "{}: qkv {} ", name, to_string(packed));
  const int64_t head_size = packed[2] / parts;
  LOCKSTEP_CHECK(kept.rank() == 3 && kept[0] == packed[0] && kept[1] == 2 * attributes.kv_heads &&
                     kept[2] % head_size == 0,
                 "{}: cache {} ",
                 name,
                 to_string(kept));
  for (const TensorId numbers : {documents, positions})
    LOCKSTEP_CHECK(builder.shape(numbers) == Shape({packed[0], packed[1]}) &&
                       builder[numbers].dtype == DType::kI32,
                   "{}: numbers of tokens ",
                   name);
  const TensorId y =
      builder.activation_tensor(name, {packed[0], packed[1], attributes.heads * head_size});
  const TensorId new_cache = builder[cache].role == Role::kState
                                 ? cache
                                 : builder.activation_tensor(name + ".cache", kept);
  builder.append({OpKind::kCachedAttention,
                  name,
                  {qkv, documents, positions, cache},
                  {y, new_cache},
                  attributes});
  return y;
}

namespace {

// Two products of length D for each head and pair of a token and one in the cache. The cache is
// assumed to be full, because its fill level is not known in advance.
int64_t cached_attention_flops(const Graph& graph, const Op& op) {
  const auto& attributes = op.as<CachedAttentionAttributes>();
  const Shape &y = graph.shape(op.outputs[CachedAttentionOut::kY]),
              &cache = graph.shape(op.inputs[CachedAttentionIn::kCache]);
  const int64_t head_size = y[2] / attributes.heads;
  return 4 * y.elements() * (cache[2] / head_size);
}

}  // namespace

const OpSchema kCachedAttentionSchema = {
    nullptr, cached_attention_flops, {{CachedAttentionOut::kNewCache, CachedAttentionIn::kCache}}};

}  // namespace lockstep::graph
