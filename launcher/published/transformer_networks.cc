#include <algorithm>
#include <array>

#include "launcher/published/networks.h"

namespace lockstep::published {
namespace {

struct Block {
  double rows = 0;  // tokens of all samples
  double width = 0, inner = 0, heads = 0, key_heads = 0;
  Attention attention;
  bool gated = false, rms_norm = false, rotary = false, biases = true, dropout = true;
  double relative_keys = 0;  // keys of a second product of queries and relative positions
  double cross_tokens = 0;   // of a second attention to this many tokens of each sample
  double samples = 0;
};

// What follows a layer that ends a branch: its bias, dropout, and the residual.
void add_branch_end(WorkCounter& net, double elements, const Block& block) {
  const double bias = block.biases ? 1 : 0;
  net.walk(elements, {3, 2 + bias}, {1, 1 + bias});
  if (block.dropout) net.walk(elements, {2.5, 2.5}, {0.5, 0.5});
}

void add_norm(WorkCounter& net, const Block& block) {
  const double elements = block.rows * block.width;
  if (block.rms_norm)
    net.walk(elements, {8, 12}, {2, 4}, {2, 4}, {6, 8});
  else
    net.walk(elements, {2, 4}, {2, 4}, {2, 4}, {1, 2});
}

void add_block(WorkCounter& net, const Block& block) {
  const auto& [rows,
               width,
               inner,
               heads,
               key_heads,
               attention,
               gated,
               rms,
               rotary,
               biases,
               dropout,
               relative_keys,
               cross_tokens,
               samples] = block;
  const double bias = biases ? 1 : 0;
  const double queries = heads * attention.size;
  const double keys = (key_heads > 0 ? key_heads : heads) * attention.size;
  const double projected = queries + 2 * keys;
  add_norm(net, block);
  net.linear(rows, projected, width);
  if (rotary) net.walk(rows * (queries + keys), {6, 6}, {2, 2}, {2, 2}, {6, 6});
  net.walk(rows * projected, {2, 2 + bias}, {1, 1 + bias}, {0, bias});
  net.attention(attention);
  if (relative_keys > 0) {
    const double scores = attention.heads * attention.queries * relative_keys;
    net.product({.m = attention.queries * attention.heads,
                 .n = relative_keys,
                 .k = attention.size,
                 .elements = attention.heads * attention.queries * attention.size + scores +
                             relative_keys * heads * attention.size},
                0);
    net.linear(relative_keys, queries, width);
    // Shifted by copies, and added.
    net.walk(scores, {8, 7}, {8, 7}, {8, 7}, {9, 8});
  }
  net.walk(rows * queries, {2, 2}, {1, 1}, {0, 0});
  net.linear(rows, width, queries);
  add_branch_end(net, rows * width, block);
  if (cross_tokens > 0) {
    net.walk(rows * width, {2, 4});
    net.linear(rows, width, width);
    net.linear(samples * cross_tokens, 2 * width, width);
    net.attention({attention.heads, attention.queries, cross_tokens, attention.size});
    net.linear(rows, width, width);
    add_branch_end(net, rows * width, block);
  }
  add_norm(net, block);
  net.linear(rows, gated ? 2 * inner : inner, width);
  if (gated)
    net.walk(rows * inner, {5, 7}, {3, 5}, {3, 5}, {2, 3});
  else
    net.walk(rows * inner, {2, 3 + bias}, {2, 3}, {1, 2});
  net.linear(rows, width, inner);
  add_branch_end(net, rows * width, block);
  net.parameters(2 * width + bias * (projected + width + inner + width + 2 * width));
}

// The products with the vocabulary and the loss over it, in FP32.
void add_head(WorkCounter& net, double rows, double vocabulary, double width, bool tied) {
  net.linear(rows, vocabulary, width, tied);
  net.walk(rows * vocabulary, {9, 8}, {3, 3}, {3, 3}, {4, 4});
}

double inner_of(const TransformerShape& shape) {
  return shape.inner > 0 ? shape.inner : 4 * shape.width;
}

Block block_of(double batch, double tokens, const TransformerShape& shape, bool causal) {
  Block block;
  block.rows = batch * tokens;
  block.width = shape.width;
  block.inner = inner_of(shape);
  block.heads = shape.heads;
  block.key_heads = shape.key_heads;
  block.samples = batch;
  block.attention = {batch * shape.heads, tokens, tokens, shape.width / shape.heads, causal};
  return block;
}

}  // namespace

NetworkWork bert(
    double batch, double tokens, const TransformerShape& shape, double fill, bool answers) {
  constexpr double kMasked = 0.15, kPositions = 512;
  NetworkWork work;
  work.samples = batch;
  WorkCounter net(work);
  Block block = block_of(batch, tokens, shape, false);
  block.rows *= fill;
  // The scores of a sequence are the square of its tokens. The mean of squares is above the square
  // of the mean.
  constexpr double kSpread = 1.15;
  if (fill < 1) block.attention.heads *= std::min(1.0, kSpread * fill * fill);
  net.walk(block.rows * shape.width, {8, 10}, {5, 6}, {5, 6}, {6, 8});
  net.embedding(shape.vocabulary * shape.width);
  net.parameters(kPositions * shape.width);
  for (int layer = 0; layer < shape.layers; ++layer) add_block(net, block);
  if (answers) {
    net.linear(block.rows, 2, shape.width);
  } else {
    const double predicted = batch * tokens * kMasked;
    net.linear(predicted, shape.width, shape.width);
    add_head(net, predicted, shape.vocabulary, shape.width, true);
  }
  return work;
}

NetworkWork gpt(
    double batch, double tokens, const TransformerShape& shape, bool biases, bool dropout) {
  NetworkWork work;
  work.samples = batch;
  work.tokens_of_sample = tokens;
  WorkCounter net(work);
  Block block = block_of(batch, tokens, shape, true);
  block.biases = biases;
  block.dropout = dropout;
  net.embedding(shape.vocabulary * shape.width);
  net.parameters(tokens * shape.width);
  net.walk(block.rows * shape.width, {3, 4}, {3, 4}, {3, 4}, {3, 4});
  for (int layer = 0; layer < shape.layers; ++layer) add_block(net, block);
  net.end_body();
  add_head(net, block.rows, shape.vocabulary, shape.width, true);
  return work;
}

NetworkWork llama(double batch, double tokens, const TransformerShape& shape) {
  NetworkWork work;
  work.samples = batch;
  work.tokens_of_sample = tokens;
  WorkCounter net(work);
  Block block = block_of(batch, tokens, shape, true);
  block.gated = block.rms_norm = block.rotary = true;
  block.biases = block.dropout = false;
  net.embedding(shape.vocabulary * shape.width);
  net.walk(block.rows * shape.width, {1, 2});
  for (int layer = 0; layer < shape.layers; ++layer) add_block(net, block);
  net.end_body();
  add_head(net, block.rows, shape.vocabulary, shape.width, shape.tied_head);
  return work;
}

NetworkWork vit(double batch, const TransformerShape& shape, int image, int patch) {
  const double side = image / patch, tokens = side * side + 1;
  const double inputs = 3.0 * patch * patch;
  NetworkWork work;
  work.samples = batch;
  WorkCounter net(work);
  Block block = block_of(batch, tokens, shape, false);
  block.dropout = false;
  net.product({.m = block.rows, .n = shape.width, .k = inputs, .convolution = true},
              shape.width * inputs);
  for (int layer = 0; layer < shape.layers; ++layer) add_block(net, block);
  net.linear(batch, 1000, shape.width);
  net.parameters(tokens * shape.width);
  return work;
}

NetworkWork translation(double tokens, const TransformerShape& shape) {
  const double sentences = tokens / kSentenceTokens;
  NetworkWork work;
  work.samples = sentences;
  work.tokens_of_sample = kSentenceTokens;
  WorkCounter net(work);
  net.walk(tokens * shape.width, {4, 6}, {3, 4}, {3, 4}, {8, 8});
  net.embedding(shape.vocabulary * shape.width);
  const Block encoder = block_of(sentences, kSentenceTokens, shape, false);
  Block decoder = block_of(sentences, kSentenceTokens, shape, true);
  decoder.cross_tokens = kSentenceTokens;
  for (int layer = 0; layer < shape.layers; ++layer) add_block(net, encoder);
  for (int layer = 0; layer < shape.layers; ++layer) add_block(net, decoder);
  add_head(net, tokens, shape.vocabulary, shape.width, true);
  return work;
}

NetworkWork transformer_xl(double batch, bool large) {
  constexpr double kVocabulary = 267735;
  // The adaptive softmax: the first clusters of words have the full width, rare words less of it.
  // The shares of all tokens that are in the later clusters.
  constexpr std::array<double, 5> kEnds = {0, 19997, 39997, 199997, kVocabulary};
  constexpr std::array<double, 4> kShares = {1, 0.07, 0.10, 0.04};
  const TransformerShape shape =
      large ? TransformerShape{18, 1024, 4096, 16} : TransformerShape{16, 512, 2048, 8};
  const double tokens = large ? 384 : 192;
  NetworkWork work;
  work.samples = batch;
  work.tokens_of_sample = tokens;
  WorkCounter net(work);
  Block block = block_of(batch, tokens, shape, false);
  block.biases = false;
  // Keys are those of the tokens and of as many before them.
  block.attention.keys = block.relative_keys = 2 * tokens;
  for (int layer = 0; layer < shape.layers; ++layer) add_block(net, block);
  net.walk(block.rows * shape.width, {3, 4}, {3, 4}, {3, 4}, {8, 10});
  double narrower = 1;
  for (size_t cluster = 0; cluster < kShares.size(); ++cluster, narrower *= large ? 4 : 1) {
    // The first one also has an entry for each other cluster.
    const double words = kEnds[cluster + 1] - kEnds[cluster] + (cluster == 0 ? 3 : 0);
    const double width = shape.width / narrower, rows = block.rows * kShares[cluster];
    net.linear(rows, words, width, true);
    net.walk(rows * words, {9, 8}, {9, 8}, {9, 8}, {6, 6});
    net.embedding(words * width);
    if (large && cluster > 0) net.linear(block.rows, width, shape.width);
  }
  return work;
}

}  // namespace lockstep::published
