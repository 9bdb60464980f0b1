// Catches: a cache that gives other logits than the whole window at once, tokens of a sequence that
// reach another one's cache, positions or a window of attention that are off by one, prompts longer
// than what is read at a time, a context that is full, a theta that follows how few tokens come; in
// BF16 also a cache of floats, weights that are not rounded, and logits that are read as floats.
#include "runtime/generate/language_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/rng.h"
#include "runtime/cpu/backend.h"
#include "runtime/plan/layout.h"
#include "runtime/train/number_types.h"
#include "runtime/train/state/initialize.h"
#include "tests/reference/models.h"

namespace lockstep::generate {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int64_t kVocabulary = 29, kContext = 150;

// Weights depend on the tensor's name and nothing else.
void fill_parameters(const std::vector<checkpoint::NamedSlice>& slices, float* flat) {
  float* next = flat;
  for (const checkpoint::NamedSlice& slice : slices) {
    uint32_t seed = 7;
    for (const char c : slice.name) seed = seed * 31 + static_cast<unsigned char>(c);
    const bool gain = slice.shape.rank() == 1 && slice.name.ends_with("weight");
    next = flat + slice.offset;
    for (int64_t i = 0; i < slice.shape.elements(); ++i) {
      const uint32_t word = philox_word({seed, 0, 0, 1}, static_cast<uint64_t>(i));
      next[i] = 0.5f * (uniform_from_word(word) - 0.5f) + (gain ? 1.0f : 0.0f);
    }
  }
}

LanguageModel cached_model(const ModelConfig& config,
                           int64_t sequences,
                           DType compute = DType::kF32) {
  return {cpu::make_backend(),
          *models::open_model(config),
          compute,
          kVocabulary,
          sequences,
          kContext,
          fill_parameters};
}

// After the last token of a sequence, by the whole window at once.
std::vector<float> logits_of_window(const ModelConfig& config,
                                    const Tokens& tokens,
                                    DType compute = DType::kF32) {
  const std::unique_ptr<exec::Backend> backend = cpu::make_backend();
  const auto build = [&](graph::Purpose purpose, int64_t length) {
    graph::GraphOptions options(purpose);
    options.compute = compute;
    return models::build_model(config, {}, 1, options, length);
  };
  const plan::ParameterLayout layout = plan::make_layout(build(graph::Purpose::kTraining, 0), 1);
  const graph::Graph graph = build(graph::Purpose::kInference, kContext);
  const plan::ProgramPlan plan =
      plan::plan_program(graph, [&](const graph::Graph& g, const graph::Op& op) {
        return backend->ops().op_workspace_bytes(g, op);
      });
  std::vector<float> weights(static_cast<size_t>(layout.elements));
  fill_parameters(train::named_slices(layout), weights.data());
  std::byte* const parameters = backend->allocate(weights.size() * size_of(compute), "parameters");
  train::round_numbers(weights, compute, parameters);
  exec::Executor executor(
      graph, plan, layout, *backend, {backend->allocate(plan.arena_bytes, "arena"), parameters});
  const auto length = std::min<size_t>(tokens.size(), kContext);
  Tokens window(tokens.end() - static_cast<std::ptrdiff_t>(length), tokens.end());
  window.resize(kContext, 0);
  const std::span<graph::LaneContext> lane = backend->host_array<graph::LaneContext>(1);
  std::vector<std::byte> result(graph[graph.result].bytes());
  executor.run(lane.front(),
               reinterpret_cast<const std::byte*>(window.data()),
               nullptr,
               nullptr,
               nullptr,
               result.data());
  std::vector<float> logits(kContext * kVocabulary);
  train::widen_numbers(result.data(), compute, logits);
  const auto last = logits.begin() + static_cast<std::ptrdiff_t>((length - 1) * kVocabulary);
  return {last, last + kVocabulary};
}

Tokens sequence_of(size_t length, int seed) {
  Tokens tokens(length);
  for (size_t i = 0; i < length; ++i)
    tokens[i] = static_cast<int32_t>((i * i * 7 + i + 5 * static_cast<size_t>(seed)) % kVocabulary);
  return tokens;
}

std::vector<float> logits_of(const LanguageModel& model, size_t sequence) {
  const float* const logits = model.logits(sequence);
  return {logits, logits + kVocabulary};
}

// Products of other shapes and sums of another order: some roundings of floats.
constexpr double kRoundings = 2e-5;
// Attention over whole windows rounds its weights too: some roundings of bfloat16.
constexpr double kBf16Roundings = 0.03;

void expect_close(const std::vector<float>& actual,
                  const std::vector<float>& expected,
                  double tolerance = kRoundings) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << i;
}

std::vector<ModelConfig> models() {
  GptConfig gpt = testing::small_gpt();
  gpt.context = 200;
  GptConfig untied = gpt;
  untied.tied_head = false;
  untied.bias = false;
  LlamaConfig llama = testing::small_llama();
  llama.context = 200;
  LlamaConfig window = llama;
  window.qk_norm = true;
  window.sliding_window = 20;
  window.qkv_bias = true;
  LlamaConfig dynamic = llama;
  dynamic.rope_scaling = LlamaConfig::RopeScaling::kDynamic;
  dynamic.rope_factor = 2;
  dynamic.output_bias = dynamic.mlp_bias = true;
  dynamic.rope_original_context = 64;
  LlamaConfig llama3 = llama;
  llama3.rope_scaling = LlamaConfig::RopeScaling::kLlama3;
  llama3.rope_factor = 8;
  llama3.rope_original_context = 64;
  return {gpt, untied, llama, window, dynamic, llama3};
}

// Of prompts as long as these each model goes on with some tokens.
TEST(LanguageModel, HasTheLogitsOfTheWholeWindow) {
  for (const ModelConfig& config : models()) {
    LanguageModel model = cached_model(config, 4);
    std::vector<Tokens> sequences = {
        sequence_of(1, 0), sequence_of(40, 1), sequence_of(140, 2), sequence_of(147, 3)};
    for (int step = 0; step < 6; ++step) {  // the last sequence outgrows the context
      model.run(sequences);
      for (size_t i = 0; i < sequences.size(); ++i) {
        SCOPED_TRACE(::testing::Message() << config.index() << " step " << step << " of " << i);
        expect_close(logits_of(model, i), logits_of_window(config, sequences[i]));
        sequences[i].push_back((7 * step + static_cast<int>(i)) % kVocabulary);
      }
    }
  }
}

TEST(LanguageModel, HasTheLogitsOfTheWholeWindowInBf16) {
  for (const ModelConfig& config : models()) {
    LanguageModel model = cached_model(config, 3, DType::kBF16);
    const size_t of_floats = cached_model(config, 3).cache_bytes();  // with some bytes of padding
    EXPECT_NEAR(
        static_cast<double>(model.cache_bytes()) / static_cast<double>(of_floats), 0.5, 0.01);
    const std::vector<Tokens> sequences = {
        sequence_of(1, 0), sequence_of(40, 1), sequence_of(kContext + 3, 2)};
    model.run(sequences);
    for (size_t i = 0; i < sequences.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << config.index() << " of " << i);
      const std::vector<float> logits = logits_of(model, i);
      expect_close(logits, logits_of_window(config, sequences[i], DType::kBF16), kBf16Roundings);
      for (const float logit : logits) EXPECT_EQ(logit, to_float(round_to<BFloat16>(logit)));
    }
  }
}

// The likeliest tokens, with the cache of the tokens before and with none.
TEST(LanguageModel, TakesTheSameTokensInBf16WithoutACache) {
  for (const ModelConfig& config : models()) {
    LanguageModel model = cached_model(config, 1, DType::kBF16);
    Tokens sequence = sequence_of(5, 1);
    for (int step = 0; step < 8; ++step) {
      model.run({sequence});
      LanguageModel fresh = cached_model(config, 1, DType::kBF16);
      fresh.run({sequence});
      const std::vector<float> logits = logits_of(model, 0);
      EXPECT_EQ(logits, logits_of(fresh, 0)) << config.index() << " step " << step;
      sequence.push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
    }
  }
}

// A sequence that is taken back and goes on otherwise, and one that becomes another.
TEST(LanguageModel, KeepsOfTheCacheOnlyWhatTheSequenceHas) {
  for (const ModelConfig& config : models()) {
    LanguageModel model = cached_model(config, 2);
    model.run({sequence_of(50, 0), sequence_of(30, 1)});
    Tokens other = sequence_of(20, 0);
    other.push_back(3);
    for (const std::vector<Tokens>& sequences :
         {std::vector<Tokens>{other, sequence_of(31, 1)}, {sequence_of(9, 4)}, {other, other}}) {
      model.run(sequences);
      LanguageModel fresh = cached_model(config, 2);
      fresh.run(sequences);
      for (size_t i = 0; i < sequences.size(); ++i)
        EXPECT_EQ(logits_of(model, i), logits_of(fresh, i));
    }
  }
}

}  // namespace
}  // namespace lockstep::generate
