// Catches: keys or values that are stored at another place, a token that does not see one of its
// own run or sees a later one, a window that is one token off, a position beyond the cache, a token
// that is none and leaves something, heads or samples mixed up, a tile of keys left out, a cache
// that is not its input where nothing is stored.
#include "runtime/graph/ops/cached_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

using Op = graph::CachedAttention<double>;

void store_token(const Op& op, int64_t b, int64_t s) {
  const int64_t position = op.position(b, s);
  if (position < 0) return;
  const double* const row = op.qkv + (b * op.tokens + s) * op.packed_width();
  for (int64_t head = 0; head < op.kv_heads; ++head) {
    for (int64_t d = 0; d < op.head_size; ++d) {
      op.keys(b, head)[d * op.room + position] = row[(op.heads + head) * op.head_size + d];
      op.values(b, head)[position * op.head_size + d] =
          row[(op.heads + op.kv_heads + head) * op.head_size + d];
    }
  }
}

void attend(const Op& op, int64_t b, int64_t s, int64_t h) {
  const int64_t position = op.position(b, s), size = op.head_size;
  double* const y = op.y + ((b * op.tokens + s) * op.heads + h) * size;
  std::fill_n(y, size, 0.0);
  if (position < 0) return;
  const double* const q = op.qkv + (b * op.tokens + s) * op.packed_width() + h * size;
  const double *const keys = op.keys(b, h / op.group()), *const values =
                                                             op.values(b, h / op.group());
  std::vector<double> weights;
  double largest = -std::numeric_limits<double>::infinity(), total = 0;
  const int64_t first = op.window > 0 ? std::max<int64_t>(0, position + 1 - op.window) : 0;
  for (int64_t key = first; key <= position; ++key) {
    double score = 0;
    for (int64_t d = 0; d < size; ++d) score += q[d] * keys[d * op.room + key];
    weights.push_back(score / std::sqrt(static_cast<double>(size)));
    largest = std::max(largest, weights.back());
  }
  for (double& weight : weights) total += weight = std::exp(weight - largest);
  for (int64_t key = first; key <= position; ++key) {
    for (int64_t d = 0; d < size; ++d)
      y[d] += weights[static_cast<size_t>(key - first)] / total * values[key * size + d];
  }
}

void reference(const graph::OpCall& call) {
  const Op op{call};
  std::copy_n(op.cache, op.cache_elements(), op.new_cache);
  for (int64_t b = 0; b < op.batch; ++b)
    for (int64_t s = 0; s < op.tokens; ++s) store_token(op, b, s);
  for (int64_t b = 0; b < op.batch; ++b)
    for (int64_t s = 0; s < op.tokens; ++s)
      for (int64_t h = 0; h < op.heads; ++h) attend(op, b, s, h);
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kCachedAttention, "double", reference}};

// As that of attention: a score is a sum of D products below 1 over sqrt(D), and the weights
// inherit its error; what is stored is copied.
Tolerance tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t i) {
  if (output == graph::CachedAttentionOut::kNewCache) return {0, 0};
  const Op op{expected};
  const double score = 8 + 2 * std::sqrt(static_cast<double>(op.head_size));
  return {score + static_cast<double>(op.room) / 8, std::abs(op.y[i])};
}

struct Case {
  int64_t batch, tokens, room, heads, kv_heads, head_size, window;
  int64_t first = 0;  // position of the first token of sample 0; those of others are later
};

// Sample b has its tokens from first + 3 b on; every seventh token is none.
OpTest cached_attention(const Case& c) {
  return {
      .name = "cached_attention B " + std::to_string(c.batch) + " S " + std::to_string(c.tokens) +
              " T " + std::to_string(c.room) + " H " + std::to_string(c.heads) + " K " +
              std::to_string(c.kv_heads) + " D " + std::to_string(c.head_size) + " window " +
              std::to_string(c.window),
      .build =
          [=](graph::GraphBuilder& builder) {
            const auto numbers = [&](const char* name) {
              return builder.tensor(
                  name, {c.batch, c.tokens}, DType::kI32, graph::Role::kActivation);
            };
            const TensorId qkv = builder.activation_tensor(
                "qkv", {c.batch, c.tokens, (c.heads + 2 * c.kv_heads) * c.head_size});
            const TensorId documents = numbers("documents"), positions = numbers("positions");
            const TensorId cache =
                builder.activation_tensor("cache", {c.batch, 2 * c.kv_heads, c.room * c.head_size});
            ops::cached_attention(
                builder, "y", qkv, documents, positions, cache, {c.heads, c.kv_heads, c.window});
          },
      .reference = kReference,
      .cpu = cpu::kCpuCachedAttention,
      .cuda = cuda::kCudaCachedAttention,
      .tolerance = tolerance,
      .gradients = 0,
      .value =
          [=](const std::string& tensor, int64_t i) {
            if (tensor == "documents") return i % 7 == 6 ? -1.0 : 0.0;
            if (tensor == "positions")
              return static_cast<double>(c.first + i / c.tokens * 3 + i % c.tokens);
            return std::sin(static_cast<double>(i * i % 9973 + i) +
                            (tensor == "cache" ? 0.5 : 0.0));
          }};
}

// Tiles of keys are 128 on CUDA, and 64 on CPUs of the widest vectors.
TEST(CachedAttentionTest, MatchesTheReferenceOnAllDevices) {
  for (const Case& c : {Case{1, 1, 1, 1, 1, 1, 0},
                        {1, 1, 5, 2, 1, 4, 0, 4},
                        {2, 1, 40, 4, 2, 16, 0, 20},
                        {3, 4, 33, 6, 3, 5, 0, 7},
                        {2, 9, 64, 4, 2, 64, 0, 30},
                        {1, 1, 300, 3, 1, 64, 0, 299},
                        {1, 8, 300, 4, 4, 33, 0, 255},
                        {2, 3, 200, 2, 2, 256, 0, 130},
                        {2, 5, 150, 4, 2, 8, 3, 100},
                        {1, 20, 150, 2, 1, 16, 130, 128}})
    check_on_all_devices(cached_attention(c));
}

// Tokens beyond the room of the cache are none.
TEST(CachedAttentionTest, StoresNothingBeyondTheCache) {
  check_on_all_devices(cached_attention({2, 6, 10, 2, 1, 8, 0, 6}));
}

}  // namespace
}  // namespace lockstep::test
