// Catches: padding of a text that reaches its loss, a gradient or what the network gives: whatever
// tokens, positions and segments stand there, no bit may change. And positions of RoBERTa that
// begin at the wrong row of their table.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "runtime/base/rng.h"
#include "runtime/cpu/backend.h"
#include "runtime/exec/executor.h"
#include "runtime/plan/layout.h"
#include "tests/reference/models.h"

namespace lockstep::exec {
namespace {

using Task = BertConfig::Task;

constexpr int64_t kBatch = 2, kContext = 29;  // of small_bert
constexpr int64_t kLengths[kBatch] = {17, 1};

// Samples (B, 4, T); what padding holds beside its document, -1, is `garbage`.
std::vector<int32_t> samples(int32_t garbage) {
  std::vector<int32_t> all(kBatch * 4 * kContext, garbage);
  for (int64_t b = 0; b < kBatch; ++b) {
    int32_t* const rows = &all[static_cast<size_t>(b * 4 * kContext)];
    std::fill_n(rows + kContext, kContext, -1);
    for (int64_t t = 0; t < kLengths[b]; ++t) {
      rows[t] = static_cast<int32_t>((t * t + 5 * b + 3) % 29);
      rows[kContext + t] = 0;
      rows[2 * kContext + t] = static_cast<int32_t>(t);
      rows[3 * kContext + t] = t > 4 ? 1 : 0;
    }
  }
  return all;
}

// Of each task: (B, T), (B) or (B, 3) numbers of 32 bits.
std::vector<int32_t> targets(Task task) {
  std::vector<int32_t> all(kBatch * kContext, -1);
  if (task == Task::kSequenceClasses || task == Task::kSequenceValues) return {3, 7, 1, 2, 0, 4};
  for (int64_t b = 0; b < kBatch; ++b)
    std::fill_n(all.begin() + b * kContext, kLengths[b], static_cast<int32_t>(4 + b));
  return all;
}

struct Result {
  std::vector<float> output;  // in inference
  std::vector<double> statistics;
  std::map<std::string, std::vector<float>> gradients;
};

Result run(const BertConfig& bert, graph::Purpose purpose, int32_t garbage) {
  const std::unique_ptr<Backend> backend = cpu::make_backend();
  const graph::Graph training = models::build_model(bert, {}, kBatch, graph::Purpose::kTraining);
  const graph::Graph graph = models::build_model(bert, {}, kBatch, purpose);
  const plan::ParameterLayout layout = plan::make_layout(training, 1);
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
  for (int64_t i = 0; i < layout.elements; ++i)
    parameters[i] = uniform_from_word(philox_word({5, 0, 0, 1}, static_cast<uint64_t>(i))) - 0.5f;
  Executor executor(
      graph,
      plan,
      layout,
      *backend,
      {backend->allocate(plan.arena_bytes, "arena"), reinterpret_cast<std::byte*>(parameters)});
  const std::span<graph::LaneContext> lane = backend->host_array<graph::LaneContext>(1);
  lane.front() = {.valid_rows = kBatch * graph.loss_rows_per_sample, .gradient_scale = 1};
  const graph::Tensor& result = graph[graph.result];
  std::vector<std::byte> bytes(result.bytes());
  const std::vector<int32_t> input = samples(garbage), target = targets(bert.task);
  executor.run(lane.front(),
               reinterpret_cast<const std::byte*>(input.data()),
               reinterpret_cast<const std::byte*>(target.data()),
               purpose == graph::Purpose::kTraining ? gradients : nullptr,
               nullptr,
               bytes.data());
  Result all;
  if (purpose == graph::Purpose::kInference) {
    const auto* values = reinterpret_cast<const float*>(bytes.data());
    all.output.assign(values, values + result.shape.elements());
    return all;
  }
  const auto* statistics = reinterpret_cast<const double*>(bytes.data());
  all.statistics.assign(statistics, statistics + graph::kStatisticCount);
  for (const plan::ParameterSlot& slot : layout.slots)
    all.gradients[slot.name].assign(gradients + slot.offset,
                                    gradients + slot.offset + slot.elements);
  return all;
}

TEST(TextPadding, ReachesNeitherLossNorGradients) {
  for (const Task task :
       {Task::kMaskedTokens, Task::kSequenceClasses, Task::kSequenceValues, Task::kTokenClasses}) {
    for (const auto layout : {BertConfig::Layout::kBert, BertConfig::Layout::kRoberta}) {
      BertConfig bert = testing::small_bert(task);
      bert.layout = layout;
      for (const auto pooling : {BertConfig::Pooling::kFirstToken, BertConfig::Pooling::kMean}) {
        bert.pooling = pooling;
        const Result zeros = run(bert, graph::Purpose::kTraining, 0);
        const Result garbage = run(bert, graph::Purpose::kTraining, 23);
        EXPECT_GT(zeros.statistics[graph::kLossSum], 0);
        EXPECT_EQ(zeros.statistics, garbage.statistics);
        EXPECT_EQ(zeros.gradients, garbage.gradients);
      }
    }
  }
}

TEST(TextPadding, ReachesNoHiddenStateOfTheText) {
  const BertConfig bert = testing::small_bert(Task::kHiddenStates);
  const std::vector<float> zeros = run(bert, graph::Purpose::kInference, 0).output;
  const std::vector<float> garbage = run(bert, graph::Purpose::kInference, 23).output;
  ASSERT_EQ(zeros.size(), static_cast<size_t>(kBatch * kContext * bert.width));
  for (int64_t b = 0; b < kBatch; ++b) {
    const auto first = static_cast<ptrdiff_t>(b * kContext * bert.width);
    const auto count = static_cast<ptrdiff_t>(kLengths[b] * bert.width);
    EXPECT_TRUE(
        std::equal(zeros.begin() + first, zeros.begin() + first + count, garbage.begin() + first));
  }
}

// The rows of a table of positions that have a gradient.
std::vector<int64_t> used_rows(const std::vector<float>& gradient, int64_t width) {
  std::vector<int64_t> used;
  for (size_t i = 0; i < gradient.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / width;
    if (gradient[i] != 0 && (used.empty() || used.back() != row)) used.push_back(row);
  }
  return used;
}

TEST(TextPositions, OfRobertaBeginAfterThatOfPadding) {
  BertConfig bert = testing::small_bert();
  bert.layout = BertConfig::Layout::kRoberta;
  bert.padding_token = 3;
  const Result result = run(bert, graph::Purpose::kTraining, 0);
  const std::vector<float>& gradient =
      result.gradients.at("roberta.embeddings.position_embeddings.weight");
  ASSERT_EQ(gradient.size(), static_cast<size_t>((kContext + 4) * bert.width));
  const std::vector<int64_t> used = used_rows(gradient, bert.width);
  ASSERT_EQ(used.size(), static_cast<size_t>(kLengths[0]));
  EXPECT_EQ(used.front(), 4);
  EXPECT_EQ(used.back(), 4 + kLengths[0] - 1);
}

}  // namespace
}  // namespace lockstep::exec
