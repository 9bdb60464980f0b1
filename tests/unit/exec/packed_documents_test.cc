// Catches: documents of a sample that see each other, positions that do not begin anew, padding
// that is counted or has a gradient, in a whole language model: its loss and gradients on a packed
// sample must be those of the documents one by one. And logits some rows at a time that change a
// bit.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include "collectives/reduce/step_totals.h"
#include "runtime/base/rng.h"
#include "runtime/cpu/backend.h"
#include "runtime/exec/executor.h"
#include "runtime/plan/layout.h"
#include "tests/reference/models.h"

namespace lockstep::exec {
namespace {

// A loss sum and the gradients of all parameters, by name.
struct Result {
  double loss = 0, counted = 0;
  std::map<std::string, std::vector<double>> gradients;

  void add(const Result& other) {
    loss += other.loss;
    counted += other.counted;
    for (const auto& [name, values] : other.gradients) {
      std::vector<double>& sums = gradients[name];
      sums.resize(values.size());
      for (size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
    }
  }
};

// Weights depend on the tensor's name and nothing else, so that any graph of a model has the same.
void fill_parameters(const plan::ParameterLayout& layout, float* parameters) {
  for (const plan::ParameterSlot& slot : layout.slots) {
    uint32_t seed = 7;
    for (const char c : slot.name) seed = seed * 31 + static_cast<unsigned char>(c);
    const bool gain = slot.shape.rank() == 1 && slot.name.ends_with("weight");
    for (int64_t i = 0; i < slot.elements; ++i) {
      const uint32_t word = philox_word({seed, 0, 0, 1}, static_cast<uint64_t>(i));
      parameters[slot.offset + i] = 0.5f * (uniform_from_word(word) - 0.5f) + (gain ? 1.0f : 0.0f);
    }
  }
}

Result run(const ModelConfig& model,
           const graph::GraphOptions& options,
           int64_t tokens,
           const std::vector<int32_t>& input,
           const std::vector<int32_t>& target) {
  const models::ModelIo io = {.features = 0, .classes = 29, .target_columns = 0};
  const std::unique_ptr<Backend> backend = cpu::make_backend();
  const graph::Graph graph = models::build_model(model, io, 1, options, tokens);
  const plan::ParameterLayout layout = plan::make_layout(graph, 1);
  const plan::ProgramPlan plan =
      plan::plan_program(graph, [&](const graph::Graph& g, const graph::Op& op) {
        return backend->ops().op_workspace_bytes(g, op);
      });
  const auto floats = [&](int64_t count) {
    return reinterpret_cast<float*>(
        backend->allocate(static_cast<size_t>(count) * sizeof(float), "test"));
  };
  float* const parameters = floats(layout.elements);
  float* const gradients = floats(layout.elements);
  fill_parameters(layout, parameters);
  Executor executor(
      graph,
      plan,
      layout,
      *backend,
      {backend->allocate(plan.arena_bytes, "arena"), reinterpret_cast<std::byte*>(parameters)});
  const std::span<graph::LaneContext> lane = backend->host_array<graph::LaneContext>(1);
  const std::span<collectives::LaneStatistics> statistics =
      backend->host_array<collectives::LaneStatistics>(1);
  lane.front() = {.valid_rows = graph.loss_rows_per_sample, .gradient_scale = 1};
  executor.run(lane.front(),
               reinterpret_cast<const std::byte*>(input.data()),
               reinterpret_cast<const std::byte*>(target.data()),
               gradients,
               nullptr,
               reinterpret_cast<std::byte*>(statistics.data()));
  Result result = {.loss = statistics.front().values[graph::kLossSum],
                   .counted = statistics.front().values[graph::kValidCount],
                   .gradients = {}};
  for (const plan::ParameterSlot& slot : layout.slots)
    result.gradients[slot.name].assign(gradients + slot.offset,
                                       gradients + slot.offset + slot.elements);
  return result;
}

// Documents of 5, 1, 4 and 3 inputs in a sample of 16 tokens, behind them padding.
constexpr int64_t kContext = 16;
constexpr int64_t kLengths[] = {5, 1, 4, 3};

int32_t token_at(int64_t i) { return static_cast<int32_t>((i * i * 7 + i) % 29); }

// Of `kLengths` with a token between documents that none of them has as an input.
Result one_by_one(const ModelConfig& model, const graph::GraphOptions& options) {
  Result sum;
  int64_t first = 0;
  for (const int64_t length : kLengths) {
    std::vector<int32_t> input, target;
    for (int64_t t = 0; t < length; ++t) {
      input.push_back(token_at(first + t));
      target.push_back(token_at(first + t + 1));
    }
    sum.add(run(model, options, length, input, target));
    first += length + 1;
  }
  return sum;
}

// On a graph of `tokens` tokens.
Result packed(const ModelConfig& model, graph::GraphOptions options, int64_t tokens = kContext) {
  options.packed = true;
  const auto filled = static_cast<size_t>(std::max(options.sample_tokens, tokens));
  std::vector<int32_t> input(3 * filled, 0), target(filled, -1);
  std::fill_n(input.begin() + static_cast<ptrdiff_t>(filled), filled, -1);
  int64_t first = 0;
  size_t t = 0;
  int32_t number = 0;
  for (const int64_t length : kLengths) {
    for (int64_t i = 0; i < length; ++i, ++t) {
      input[t] = token_at(first + i);
      input[filled + t] = number;
      input[2 * filled + t] = static_cast<int32_t>(i);
      target[t] = token_at(first + i + 1);
    }
    ++number;
    first += length + 1;
  }
  return run(model, options, tokens, input, target);
}

// Sums over documents have other orders: some roundings of floats, relative to a tensor's norm.
void expect_close(const Result& actual, const Result& expected) {
  constexpr double kTolerance = 1e-5;
  EXPECT_EQ(actual.counted, expected.counted);
  EXPECT_NEAR(actual.loss, expected.loss, kTolerance * expected.loss);
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  for (const auto& [name, wanted] : expected.gradients) {
    const std::vector<double>& got = actual.gradients.at(name);
    double difference = 0, norm = 0;
    // Positions behind the longest document have no gradient where they are not looked up.
    for (size_t i = 0; i < wanted.size(); ++i) {
      difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
      norm += wanted[i] * wanted[i];
    }
    EXPECT_GT(norm, 0) << name;
    EXPECT_LE(std::sqrt(difference), kTolerance * std::sqrt(norm)) << name;
  }
}

GptConfig gpt() {
  GptConfig config = testing::small_gpt();
  config.context = kContext;
  return config;
}

LlamaConfig llama() {
  LlamaConfig config = testing::small_llama();
  config.context = kContext;
  config.qk_norm = true;
  config.sliding_window = 3;
  config.qkv_bias = true;
  return config;
}

TEST(PackedDocuments, HaveTheLossAndGradientsOfTheDocumentsOneByOne) {
  for (const ModelConfig& model : {ModelConfig(gpt()), ModelConfig(llama())}) {
    const graph::GraphOptions options(graph::Purpose::kTraining);
    expect_close(packed(model, options), one_by_one(model, options));
  }
}

TEST(PackedDocuments, RecomputationAndRowsOfLogitsChangeNoBit) {
  for (const ModelConfig& model : {ModelConfig(gpt()), ModelConfig(llama())}) {
    graph::GraphOptions options(graph::Purpose::kTraining);
    const Result expected = packed(model, options);
    options.recompute = true;
    for (const int64_t rows : {0, 1, 5, 16}) {
      options.loss_rows = rows;
      const Result actual = packed(model, options);
      EXPECT_EQ(actual.loss, expected.loss) << rows;
      EXPECT_EQ(actual.gradients, expected.gradients) << rows;
    }
  }
}

// A graph of 16 tokens that takes them of samples of 24, which are longer by padding: the products
// over all rows have the same terms and some zeros more.
TEST(PackedDocuments, AShorterGraphHasTheLossAndGradientsOfTheWholeOne) {
  LlamaConfig dynamic = llama();
  dynamic.rope_scaling = LlamaConfig::RopeScaling::kDynamic;
  dynamic.rope_factor = 4;
  dynamic.rope_original_context = 8;
  for (const ModelConfig& model :
       {ModelConfig(gpt()), ModelConfig(llama()), ModelConfig(dynamic)}) {
    for (const int64_t rows : {0, 5, 20}) {
      graph::GraphOptions options(graph::Purpose::kTraining);
      options.sample_tokens = kContext + 8;
      options.loss_rows = rows;
      ModelConfig whole = model;
      std::visit(
          [&](auto& config) {
            if constexpr (requires { config.context; }) config.context = options.sample_tokens;
          },
          whole);
      expect_close(packed(whole, options, kContext), packed(whole, options, options.sample_tokens));
    }
  }
}

// The arena has no room for all logits.
TEST(PackedDocuments, RowsOfLogitsSaveMemory) {
  LlamaConfig model = llama();
  model.vocabulary = 5003;
  const std::unique_ptr<Backend> backend = cpu::make_backend();
  const auto arena_bytes = [&](int64_t rows) {
    graph::GraphOptions options(graph::Purpose::kTraining);
    options.loss_rows = rows;
    const graph::Graph graph = models::build_model(model, {.classes = 5003}, 4, options);
    return plan::plan_program(graph,
                              [&](const graph::Graph& g, const graph::Op& op) {
                                return backend->ops().op_workspace_bytes(g, op);
                              })
        .arena_bytes;
  };
  const size_t logits = 4 * kContext * 5003 * sizeof(float);
  EXPECT_GT(arena_bytes(0), logits);
  EXPECT_LT(arena_bytes(8), arena_bytes(0) - logits / 2);
}

}  // namespace
}  // namespace lockstep::exec
