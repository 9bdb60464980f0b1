// Catches: a mask that is one token off, a window or a document that hides too much or too little,
// a token that sees nothing and is no zero, a tile passed over that has something to see, a block
// of keys left out or taken twice, a running maximum or sum that is not carried from block to
// block, heads or samples mixed up, a wrong gradient, gradients added to what was in the output, a
// mask of dropout that is another one in the backward pass or in another block, or that changes the
// softmax's denominator, elements behind the head's size that count, a missing barrier around
// shared tiles, lengths of samples that count wrongly, padding that cuDNN leaves undefined and
// nobody clears.
#include "runtime/graph/ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <string_view>
#include <vector>

#include "runtime/base/rng.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/plan/attention.h"
#include "tests/fibers/host_stream.h"
#include "tests/ops/op_test.h"
#include "tests/reference/kernel_test.h"

namespace lockstep::test {
namespace {

// One head of one sample.
struct Head {
  Head(const graph::AttentionShape& shape, int64_t index) : s(shape), index(index) {}

  // Of q, k or v (part 0, 1 or 2) of a token in qkv, and of a token in y.
  int64_t at(int64_t token, int64_t part) const {
    const int64_t row = (sample() * s.time + token) * s.packed_width();
    if (part == 0) return row + first();
    return row + s.width() + (part - 1) * s.kv_width() + first_of_keys();
  }
  int64_t at(int64_t token) const { return (sample() * s.time + token) * s.width() + first(); }
  int64_t sample() const { return index / s.heads; }
  int64_t first() const { return index % s.heads * s.head_size; }
  int64_t first_of_keys() const { return index % s.heads / (s.heads / s.kv_heads) * s.head_size; }
  bool sees(const int32_t* documents, int64_t query, int64_t key) const {
    if (s.causal && key > query) return false;
    if (s.window > 0 && std::abs(query - key) >= s.window) return false;
    if (documents == nullptr) return true;
    const int32_t* const number = documents + sample() * s.time;
    const int32_t seen = s.padding_sees && number[query] < 0 ? 0 : number[query];
    return seen >= 0 && seen == number[key];
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(s.head_size)); }
  double dot(const double* a, const double* b) const {
    double sum = 0;
    for (int64_t d = 0; d < s.head_size; ++d) sum += a[d] * b[d];
    return sum;
  }
  double score(const double* qkv, int64_t query, int64_t key) const {
    return scale() * dot(qkv + at(query, 0), qkv + at(key, 1));
  }

  const graph::AttentionShape& s;
  int64_t index;
};

// What a probability is multiplied by, as in DropoutTest.
double kept(const graph::OpCall& call,
            const graph::AttentionDropout& dropout,
            const Head& head,
            int64_t query,
            int64_t key) {
  if (dropout.probability == 0) return 1;
  const graph::LaneContext& lane = call.lane();
  const RngStream stream{lane.seed, lane.step, lane.lane, dropout.purpose};
  const int64_t row = (head.s.time + 3) / 4 * 4;
  const int64_t word = (head.index * head.s.time + key) * row + query;
  const double random = philox_word(stream, static_cast<uint64_t>(word));
  const double threshold = static_cast<double>(dropout.probability) * 4294967296.0;
  return random >= threshold ? 1 / (1 - static_cast<double>(dropout.probability)) : 0;
}

void reference_forward(const graph::OpCall& call) {
  const graph::AttentionForward<double> op{call};
  const graph::AttentionShape& s = op.shape;
  std::vector<double> p(static_cast<size_t>(s.time));
  for (int64_t index = 0; index < s.batch * s.heads; ++index) {
    const Head head(s, index);
    for (int64_t query = 0; query < s.time; ++query) {
      std::vector<int64_t> seen;
      for (int64_t key = 0; key < s.time; ++key)
        if (head.sees(op.documents, query, key)) seen.push_back(key);
      double largest = -std::numeric_limits<double>::infinity(), total = 0;
      for (size_t k = 0; k < seen.size(); ++k) {
        p[k] = head.score(op.qkv, query, seen[k]);
        largest = std::max(largest, p[k]);
      }
      for (size_t k = 0; k < seen.size(); ++k) total += p[k] = std::exp(p[k] - largest);
      op.log_sum_exp[index * s.time + query] = seen.empty() ? 0 : largest + std::log(total);
      double* const y = op.y + head.at(query);
      for (int64_t d = 0; d < s.head_size; ++d) {
        y[d] = 0;
        for (size_t k = 0; k < seen.size(); ++k)
          y[d] += kept(call, op.dropout, head, query, seen[k]) * p[k] / total *
                  op.qkv[head.at(seen[k], 2) + d];
      }
    }
  }
}

void reference_backward(const graph::OpCall& call) {
  const graph::AttentionBackward<double> op{call};
  const graph::AttentionShape& s = op.shape;
  std::fill_n(op.d_qkv, s.batch * s.time * s.packed_width(), 0.0);
  for (int64_t index = 0; index < s.batch * s.heads; ++index) {
    const Head head(s, index);
    for (int64_t query = 0; query < s.time; ++query) {
      const double* const d_y = op.d_y + head.at(query);
      const double delta = head.dot(d_y, op.y + head.at(query));
      for (int64_t key = 0; key < s.time; ++key) {
        if (!head.sees(op.documents, query, key)) continue;
        const double p =
            std::exp(head.score(op.qkv, query, key) - op.log_sum_exp[index * s.time + query]);
        const double factor = kept(call, op.dropout, head, query, key);
        const double d_p = factor * head.dot(d_y, op.qkv + head.at(key, 2));
        const double d_score = p * (d_p - delta) * head.scale();
        for (int64_t d = 0; d < s.head_size; ++d) {
          op.d_qkv[head.at(query, 0) + d] += d_score * op.qkv[head.at(key, 1) + d];
          op.d_qkv[head.at(key, 1) + d] += d_score * op.qkv[head.at(query, 0) + d];
          op.d_qkv[head.at(key, 2) + d] += factor * p * d_y[d];
        }
      }
    }
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kAttention, "double", reference_forward},
    {graph::OpKind::kAttentionBackward, "double", reference_backward},
};

// A score is a sum of D products below spread^2, over sqrt(D), whose roundings mostly cancel. The
// weights inherit its error as a relative one, and so do means of v (up to `spread`) weighted with
// them; sums over T tokens add theirs. Gradients are twice such sums.
Tolerance tolerance(const graph::OpCall& expected,
                    double spread,
                    graph::OutputName output,
                    int64_t i) {
  const bool forward = expected.kind() == graph::OpKind::kAttention;
  const graph::AttentionShape s = forward ? graph::AttentionForward<double>{expected}.shape
                                          : graph::AttentionBackward<double>{expected}.shape;
  const double score = spread * spread * (8 + 2 * std::sqrt(static_cast<double>(s.head_size)));
  const double mean = spread * (score + static_cast<double>(s.time) / 8);
  if (!forward) {
    // Keys and values have a sum of each head that shares them.
    const double mean_of_heads = mean * static_cast<double>(s.group());
    const double size = std::abs(graph::AttentionBackward<double>{expected}.d_qkv[i]);
    return {8 * mean_of_heads * (spread * spread + size), size};
  }
  if (output == graph::AttentionOut::kLogSumExp) return {2 * mean, 0};
  return {mean, std::abs(graph::AttentionForward<double>{expected}.y[i])};
}

// Scores have a standard deviation of about spread^2 / 3.
OpTest attention(const graph::AttentionShape& s, double spread) {
  return {.name = "attention B " + std::to_string(s.batch) + " T " + std::to_string(s.time) +
                  " H " + std::to_string(s.heads) + " K " + std::to_string(s.kv_heads) + " D " +
                  std::to_string(s.head_size) + (s.causal ? " causal" : " full") +
                  (s.window > 0 ? " window " + std::to_string(s.window) : ""),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId qkv =
                    builder.activation_tensor("qkv", {s.batch, s.time, s.packed_width()});
                ops::attention(builder, "y", qkv, {s.heads, s.causal, s.kv_heads, s.window});
              },
          .reference = kReference,
          .cpu = cpu::kCpuAttention,
          .cuda = cuda::kCudaAttention,
          .tolerance = [=](const graph::OpCall& expected,
                           graph::OutputName output,
                           int64_t i) { return tolerance(expected, spread, output, i); },
          .low = -spread,
          .high = spread};
}

// The same with documents, of which token t of all samples together has number(t).
// `one_document`: each sample has one, with padding behind it.
OpTest with_documents(const graph::AttentionShape& s,
                      std::function<int32_t(int64_t)> number,
                      bool one_document = false) {
  OpTest test = attention(s, 1);
  test.name += s.padding_sees ? " of documents, padding sees" : " of documents";
  test.build = [=](graph::GraphBuilder& builder) {
    const TensorId qkv = builder.activation_tensor("qkv", {s.batch, s.time, s.packed_width()});
    const TensorId documents =
        builder.tensor("documents", {s.batch, s.time}, DType::kI32, graph::Role::kActivation);
    graph::AttentionAttributes attributes = {s.heads, s.causal, s.kv_heads, s.window};
    attributes.padding_sees = s.padding_sees;
    attributes.one_document = one_document;
    ops::attention(builder, "y", qkv, attributes, documents);
  };
  test.value = [=](const std::string& tensor, int64_t i) {
    if (tensor == "documents") return static_cast<double>(number(i));
    return std::sin(static_cast<double>(i * i % 9973 + i));
  };
  return test;
}

// One document at the front of each sample, of these lengths, and padding behind it: what cuDNN
// supports.
OpTest with_padding(const graph::AttentionShape& s, std::vector<int64_t> lengths) {
  OpTest test = with_documents(
      s,
      [=](int64_t i) { return i % s.time < lengths[static_cast<size_t>(i / s.time)] ? 0 : -1; },
      /*one_document=*/true);
  test.name += " and padding";
  return test;
}

// Whether the plan gives both passes to cuDNN, and its stand-in has them.
void expect_cudnn(const OpTest& test) {
  graph::GraphOptions options(graph::Purpose::kTraining);
  options.compute = DType::kBF16;
  graph::GraphBuilder builder(options);
  test.build(builder);
  const graph::Graph& graph = builder.graph();
  const graph::OpCall call(graph, graph.ops.back());
  EXPECT_EQ(cuda::cudnn_attention_limit(call), "") << test.name;
  CUstream_st stream;
  cuda::CudnnAttention cudnn(&stream);
  const cuda::CudnnAttentionKey key = cuda::cudnn_attention_key(call);
  EXPECT_TRUE(cudnn.supports(key.shape, key.dtype, key.padded))
      << test.name << ": " << cudnn.why_not();
}

// The version of cuDNN that the stand-in plays, until the end of the scope.
struct CudnnVersion {
  explicit CudnnVersion(const char* version) { setenv("FAKE_CUDNN_VERSION", version, 1); }
  ~CudnnVersion() { unsetenv("FAKE_CUDNN_VERSION"); }
};

// Documents of 1, 2, 3, ... tokens, then padding, in each sample of `time`.
std::function<int32_t(int64_t)> growing_documents(int64_t time) {
  return [=](int64_t i) -> int32_t {
    const auto number = static_cast<int32_t>((std::sqrt(8.0 * (i % time) + 1) - 1) / 2);
    return i % time > time - time / 5 ? -1 : number;
  };
}

// The same of any test, with dropout. What is kept is larger by as much, and so is each error.
OpTest with_dropout(const graph::AttentionShape& s, float probability, bool documents) {
  OpTest test = documents ? with_documents(s, growing_documents(s.time)) : attention(s, 1);
  test.name += " dropout " + std::to_string(probability);
  test.build = [=](graph::GraphBuilder& builder) {
    builder.new_random_stream();  // of another op
    const TensorId qkv = builder.activation_tensor("qkv", {s.batch, s.time, s.packed_width()});
    const TensorId numbers =
        documents
            ? builder.tensor("documents", {s.batch, s.time}, DType::kI32, graph::Role::kActivation)
            : kNoTensor;
    const graph::AttentionAttributes attributes = {
        s.heads, s.causal, s.kv_heads, s.window, probability};
    ops::attention(builder, "y", qkv, attributes, numbers);
  };
  test.tolerance = [=](const graph::OpCall& expected, graph::OutputName output, int64_t i) {
    const Tolerance plain = tolerance(expected, 1, output, i);
    return Tolerance{plain.floats / (1 - probability) / (1 - probability), plain.stored};
  };
  test.lane = {.seed = 0xFEDCBA9876543210u, .step = 4000000000u, .lane = 4095};
  return test;
}

// The implementations that multiply by tiles, the CPU's and those on a GPU's tensor cores, or the
// others.
exec::Implementations implementations(exec::Implementations all, bool tiles) {
  static std::map<std::pair<const void*, bool>, std::vector<exec::Implementation>> known;
  auto [rows, added] = known.try_emplace({all.data(), tiles});
  for (const exec::Implementation& row : all) {
    const std::string_view name = row.name;
    if (added && tiles == (name == "tiles" || name == "flash")) rows->second.push_back(row);
  }
  return rows->second;
}

// What tiles add to a tolerance: they round each p, of which a query has 1 in total, and each d_s,
// which is about p times the square of the spread. A key has the weights of all queries that see
// it.
double error_of_tiles(const graph::OpCall& expected, double spread) {
  if (expected.kind() == graph::OpKind::kAttention) {
    const graph::AttentionForward<double> op{expected};
    return spread / (1 - static_cast<double>(op.dropout.probability));
  }
  const graph::AttentionBackward<double> op{expected};
  const double kept = 1 / (1 - static_cast<double>(op.dropout.probability));
  const double weights =
      static_cast<double>(op.shape.group()) * (1 + std::log(static_cast<double>(op.shape.time)));
  return 2 * weights * spread * (1 + spread * spread) * kept * kept;
}

void check(OpTest test) {
  OpTest plain = test;
  plain.cpu = implementations(cpu::kCpuAttention, /*tiles=*/false);
  plain.cuda = {};
  check_on_all_devices(plain);
  OpTest tiles = test;
  tiles.name += " by tiles";
  tiles.cpu = implementations(cpu::kCpuAttention, /*tiles=*/true);
  tiles.tolerance = [plain = test.tolerance, spread = test.high](
                        const graph::OpCall& expected, graph::OutputName output, int64_t i) {
    Tolerance tolerance = plain(expected, output, i);
    const bool rounds = expected.output_dtype(output) != DType::kF32;
    if (rounds) tolerance.stored += error_of_tiles(expected, spread);
    return tolerance;
  };
  check_on_all_devices(tiles);
  if (test.cuda.empty() || test.high > 2) return;  // larger scores would have few bits left
  test.name += " in TF32";
  test.cpu = test.cuda = {};
  test.cuda_tf32 = implementations(cuda::kCudaAttention, /*tiles=*/true);
  test.any_address = false;
  // Inputs, weights and their gradients are rounded to 10 bits of mantissa; the errors of a score's
  // products mostly cancel.
  test.tolerance = [plain = test.tolerance, spread = test.high](
                       const graph::OpCall& expected, graph::OutputName output, int64_t i) {
    constexpr double kHalfSpacing = 0x1p-11;
    Tolerance tolerance = plain(expected, output, i);
    const double error = 4 * error_of_tiles(expected, spread) * (1 + spread * spread);
    tolerance.floats += error * kHalfSpacing / kEps;
    return tolerance;
  };
  check_on_all_devices(test);
}

TEST(AttentionTest, ReferenceMatchesFiniteDifferences) {
  for (const bool causal : {false, true}) {
    check_gradient_of_reference(attention({2, 4, 2, 3, causal}, 1));
    check_gradient_of_reference(attention({2, 3, 6, 2, causal, 2}, 1));
    check_gradient_of_reference(attention({1, 6, 2, 2, causal, 1, 3}, 1));
    check_gradient_of_reference(with_documents({2, 6, 2, 2, causal, 2, 3}, growing_documents(6)));
  }
}

// Blocks of the CPU are 64 tokens; 800 is more than a depth block of a product.
TEST(AttentionTest, MatchesTheReferenceOnTheCpu) {
  for (const bool causal : {false, true}) {
    for (const graph::AttentionShape& s : {graph::AttentionShape{2, 1, 3, 5, causal},
                                           {1, 2, 1, 64, causal},
                                           {2, 7, 2, 16, causal},
                                           {1, 63, 1, 3, causal},
                                           {1, 64, 2, 64, causal},
                                           {2, 65, 1, 20, causal},
                                           {1, 128, 1, 64, causal},
                                           {1, 130, 2, 33, causal},
                                           {1, 200, 1, 128, causal},
                                           {1, 70, 1, 256, causal},
                                           {1, 9, 1, 800, causal},
                                           {2, 65, 6, 20, causal, 2},
                                           {1, 130, 4, 33, causal, 1}}) {
      OpTest test = attention(s, 2);
      test.cuda = {};
      check(test);
    }
  }
}

// Sizes of heads for each way to share a row out; the second and the last are such that cuDNN takes
// them.
TEST(AttentionTest, MatchesTheReferenceOnAllDevices) {
  for (const bool causal : {false, true}) {
    for (const graph::AttentionShape& s : {graph::AttentionShape{1, 1, 1, 1, causal},
                                           {2, 33, 2, 8, causal},
                                           {1, 70, 1, 18, causal},
                                           {1, 40, 2, 64, causal},
                                           {1, 35, 1, 128, causal},
                                           {1, 18, 1, 160, causal},
                                           {1, 17, 1, 256, causal},
                                           {1, 130, 1, 40, causal},
                                           {2, 35, 6, 20, causal, 3},
                                           {1, 33, 4, 96, causal, 1},
                                           {1, 64, 2, 80, causal, 1}})
      check(attention(s, 1));
  }
}

// A window of one token, some that end within a block or a tile, at its border, and one that is
// wider than all there is.
TEST(AttentionTest, WindowsMatchTheReference) {
  for (const bool causal : {false, true}) {
    for (const graph::AttentionShape& s : {graph::AttentionShape{1, 7, 1, 8, causal, 1, 1},
                                           {2, 70, 2, 20, causal, 1, 5},
                                           {1, 130, 1, 16, causal, 1, 64},
                                           {1, 200, 2, 16, causal, 2, 65},
                                           {1, 66, 1, 130, causal, 1, 33},
                                           {1, 40, 1, 64, causal, 1, 100}})
      check(attention(s, 1));
  }
}

// Shapes that cuDNN takes: windows of one token, of all but one and in between.
TEST(AttentionTest, WindowsThroughCudnnMatchTheReference) {
  const CudnnVersion version("91900");
  for (const bool causal : {false, true}) {
    for (const graph::AttentionShape& s : {graph::AttentionShape{1, 12, 1, 8, causal, 1, 1},
                                           {2, 70, 2, 16, causal, 1, 5},
                                           {1, 36, 2, 64, causal, 2, 35}}) {
      const OpTest test = attention(s, 1);
      expect_cudnn(test);
      check(test);
    }
  }
}

// Samples without padding, of one token, of padding alone, and in between. cuDNN leaves the rows of
// padding undefined, so those that it does not write must be zeros all the same.
TEST(AttentionTest, PaddingThroughCudnnMatchesTheReference) {
  const CudnnVersion version("91900");
  for (const bool causal : {false, true}) {
    for (graph::AttentionShape s : {graph::AttentionShape{4, 9, 1, 8, causal},
                                    {4, 33, 2, 16, causal, 1},
                                    {4, 20, 1, 64, causal, 1, 6}})
      for (const bool sees : {false, true}) {
        if (sees && s.window > 0) continue;
        s.padding_sees = sees;
        const OpTest test = with_padding(s, {s.time, 1, 0, s.time / 2});
        expect_cudnn(test);
        check(test);
      }
  }
}

TEST(AttentionTest, DocumentsMatchTheReference) {
  for (const bool causal : {false, true}) {
    for (const graph::AttentionShape& s : {graph::AttentionShape{2, 5, 1, 8, causal},
                                           {2, 70, 2, 20, causal, 1},
                                           {1, 150, 1, 16, causal, 1, 9},
                                           {1, 40, 1, 130, causal}})
      check(with_documents(s, growing_documents(s.time)));
    // Whole blocks that see nothing of each other, one of padding alone, and documents in parts.
    const graph::AttentionShape s = {1, 330, 1, 8, causal};
    check(with_documents(s, [](int64_t t) { return t < 260 ? t / 65 : -1; }));
    check(with_documents({1, 70, 1, 8, causal}, [](int64_t t) { return t % 3 - 1; }));
  }
}

// Padding in front, between, behind, and in whole blocks; in front a causal one sees nothing.
TEST(AttentionTest, PaddingThatSeesMatchesTheReference) {
  for (const bool causal : {false, true}) {
    graph::AttentionShape s = {2, 150, 2, 16, causal, 1};
    s.padding_sees = true;
    check(with_documents(s, [](int64_t t) { return t % 150 < 70 ? 0 : -1; }));
    s.batch = s.heads = 1;
    check(with_documents(s, [](int64_t t) { return t % 150 > 80 ? 0 : -1; }));
    check(with_documents(s, [](int64_t t) { return t % 5 == 3 ? -1 : 0; }));
    check(with_documents(s, [](int64_t t) { return t % 3 - 1; }));
    s = {2, 6, 2, 2, causal, 2};
    s.padding_sees = true;
    check_gradient_of_reference(with_documents(s, [](int64_t t) { return t % 6 < 4 ? 0 : -1; }));
  }
}

TEST(AttentionTest, DropoutMatchesTheReference) {
  for (const bool causal : {false, true}) {
    for (const graph::AttentionShape& s : {graph::AttentionShape{1, 1, 1, 8, causal},
                                           {2, 70, 2, 20, causal, 1},
                                           {3, 9, 6, 8, causal, 2},
                                           {1, 130, 1, 16, causal, 1, 65},
                                           {1, 67, 1, 130, causal},
                                           {1, 64, 4, 16, causal, 2}}) {
      check(with_dropout(s, 0.1f, false));
      check(with_dropout(s, 0.5f, s.time > 20));
    }
  }
  check_gradient_of_reference(with_dropout({2, 6, 2, 2, true, 1, 3}, 0.4f, true));
  check_gradient_of_reference(with_dropout({1, 5, 4, 3, false, 2}, 0.4f, false));
}

// With equal scores each probability is 1 / T, and outputs of values of 1 are the share that is
// kept.
TEST(AttentionTest, DropoutKeepsTheStatedShareAndTheMean) {
  const graph::AttentionShape s = {2, 160, 8, 4, false};
  constexpr float kProbability = 0.3f;
  OpTest ones = with_dropout(s, kProbability, false);
  ones.value = [=](const std::string&, int64_t i) { return i % s.packed_width() >= 2 * s.width(); };
  double sum = 0;
  const std::vector<double> y = first_output_of_reference(ones);
  for (const double value : y) sum += value;
  const auto pairs = static_cast<double>(s.batch * s.heads * s.time * s.time);
  // Five standard deviations of a binomial count.
  const double deviation = 5 * std::sqrt(kProbability * (1 - kProbability) / pairs);
  EXPECT_LE(std::abs(sum / static_cast<double>(y.size()) - 1), deviation / (1 - kProbability));
}

// Values of another document, however large, change no bit.
TEST(AttentionTest, OtherDocumentsDoNotMatter) {
  const graph::AttentionShape s = {1, 150, 2, 24, true};
  OpTest test = with_documents(s, [](int64_t t) { return t < 101 ? 0 : 1; });
  test.gradients = 0;
  const auto documents = test.value;
  test.value = [=](const std::string& tensor, int64_t i) {
    const bool first = i / s.packed_width() < 101;
    return documents(tensor, i) * (tensor == "qkv" && first ? 3000 : 1);
  };
  test.tolerance =
      [=](const graph::OpCall& expected, graph::OutputName output, int64_t i) -> Tolerance {
    const bool first = (output == graph::AttentionOut::kY ? i / s.width() : i % s.time) < 101;
    return first ? Tolerance{1e30, 0} : tolerance(expected, 1, output, i);
  };
  check(test);
}

// exp(score) alone would be infinite: only the maximum keeps it finite. Scores up to 60^2 sqrt(16)
// are known to 16 eps times that; where two keys compete, the weights have that error, and the
// outputs are means of values up to 60. Of gradients, that they are finite.
TEST(AttentionTest, LargeScoresDoNotOverflow) {
  OpTest test = attention({1, 100, 1, 16, true}, 60);
  test.tolerance =
      [](const graph::OpCall& expected, graph::OutputName output, int64_t i) -> Tolerance {
    constexpr double kScoreError = 16.0 * 60 * 60 * 4;
    if (expected.kind() == graph::OpKind::kAttentionBackward) return {1e30, 0};
    if (output == graph::AttentionOut::kLogSumExp) return {kScoreError, 0};
    return {2 * 60 * kScoreError, std::abs(graph::AttentionForward<double>{expected}.y[i])};
  };
  check(test);
}

// Those that a token must not see would be its maximum, and all of its sum.
TEST(AttentionTest, LaterTokensDoNotChangeEarlierOnes) {
  const graph::AttentionShape s = {1, 150, 2, 24, true};
  OpTest test = attention(s, 1);
  test.gradients = 0;
  test.value = [=](const std::string&, int64_t i) {
    const int64_t token = i / (3 * s.heads * s.head_size);
    return std::sin(static_cast<double>(i)) * (token < 101 ? 1 : 3000);
  };
  test.tolerance =
      [=](const graph::OpCall& expected, graph::OutputName output, int64_t i) -> Tolerance {
    const bool earlier =
        (output == graph::AttentionOut::kY ? i / (s.heads * s.head_size) : i % s.time) < 101;
    return earlier ? tolerance(expected, 1, output, i) : Tolerance{1e30, 0};
  };
  check(test);
}

// A diverged run must show.
TEST(AttentionTest, HidesNoNaN) {
  for (const int64_t position : {3, 11, 20}) {  // in q, k and v of the first token
    OpTest test = attention({1, 80, 1, 8, false}, 1);
    test.value = [=](const std::string& tensor, int64_t i) {
      return tensor == "qkv" && i == position ? std::nan("") : std::sin(static_cast<double>(i));
    };
    check(test);
  }
}

}  // namespace
}  // namespace lockstep::test
