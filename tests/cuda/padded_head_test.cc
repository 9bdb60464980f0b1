// Whole models with a head whose outputs are padded in memory (graph/ops/padded_head.h), on the
// stand-in for GPUs. Catches: padding that changes a bit of a loss or gradient, padding that does
// not stay 0, an op that reads or writes a padded parameter as if it were not, and a layout that
// has no room for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/rng.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/host_copy.h"
#include "runtime/graph/ops/lora.h"
#include "runtime/plan/plan.h"
#include "runtime/train/number_types.h"
#include "tests/reference/backend_of_tests.h"
#include "tests/reference/models.h"

namespace lockstep::exec {
namespace {

constexpr int64_t kBatch = 2;

struct Case {
  std::string name;
  GptConfig model;
  int64_t loss_rows = 0;
  bool lora = false;  // of the head alone; everything else is frozen
};

Case case_of(const std::string& name, GptConfig model, int64_t vocabulary) {
  model.vocabulary = vocabulary;
  return {name + " of " + std::to_string(vocabulary), model};
}

std::vector<Case> cases() {
  GptConfig untied = testing::small_gpt();
  untied.tied_head = false;
  std::vector<Case> all;
  for (const int64_t vocabulary : {65, 257}) {
    all.push_back(case_of("tied", testing::small_gpt(), vocabulary));
    all.push_back(case_of("untied", untied, vocabulary));
    all.push_back(case_of("with a bias", testing::small_gptj(), vocabulary));
  }
  const size_t whole = all.size();
  for (size_t i = 0; i < whole; ++i) {
    all.push_back(all[i]);
    all.back().name += ", in chunks";
    all.back().loss_rows = 10;  // the last chunk has 4
  }
  all.push_back(case_of("LoRA", untied, 65));
  all.back().lora = true;
  return all;
}

graph::GraphOptions options_of(const Case& at, DType compute, graph::Purpose purpose) {
  graph::GraphOptions options(purpose);
  options.compute = compute;
  options.head_multiple = 64;
  options.loss_rows = at.loss_rows;
  if (!at.lora) return options;
  options.lora.parts = [](const std::string& weight, int64_t rows) {
    return weight.find("head") == std::string::npos ? std::vector<graph::OutputRows>()
                                                    : std::vector<graph::OutputRows>{{0, rows}};
  };
  options.prepare_parameters = [](graph::Graph& graph) {
    for (const TensorId id : graph.parameters) graph[id].frozen = !graph::is_lora(graph[id].name);
  };
  return options;
}

struct Result {
  std::vector<double> statistics;
  std::map<std::string, std::vector<uint32_t>> gradients;  // bits
  int64_t padding = 0;                                     // elements of all parameters
  bool padding_is_zero = true;
};

uint32_t word_of(uint32_t purpose, size_t i) { return philox_word({3, 0, 0, purpose}, i); }

// The parameters in the flat buffer, the same for any layout.
std::vector<float> parameters_of(const plan::ParameterLayout& layout) {
  std::vector<float> values(static_cast<size_t>(layout.elements), 0.0f);
  for (size_t s = 0; s < layout.slots.size(); ++s) {
    const auto begin = static_cast<size_t>(layout.slots[s].offset);
    for (size_t i = 0; i < static_cast<size_t>(layout.slots[s].elements); ++i)
      values[begin + i] = uniform_from_word(word_of(static_cast<uint32_t>(10 + s), i)) - 0.5f;
  }
  return values;
}

// Without `padded`, products have the head's own number of outputs. Rows of logits are padded in
// either case, because where a row begins decides in which order the loss adds it up.
graph::Graph graph_of(const Case& at, DType compute, bool padded, graph::Purpose purpose) {
  const models::ModelIo io = {.features = 0, .classes = at.model.vocabulary, .target_columns = 0};
  graph::Graph graph = models::build_model(at.model, io, kBatch, options_of(at, compute, purpose));
  for (graph::Tensor& tensor : graph.tensors)
    if (!padded) tensor.padded_rows = 0;
  return graph;
}

Result run(const Case& at, DType compute, bool padded, graph::Purpose purpose) {
  const std::unique_ptr<Backend> backend = testing::make_backend_of_tests();
  const graph::Graph training = graph_of(at, compute, padded, graph::Purpose::kTraining),
                     graph = graph_of(at, compute, padded, purpose);
  const plan::ParameterLayout layout = plan::make_layout(training, 1);
  const plan::ProgramPlan plan =
      plan::plan_program(graph, [&](const graph::Graph& g, const graph::Op& op) {
        return backend->ops().op_workspace_bytes(g, op);
      });
  const size_t flat = static_cast<size_t>(layout.elements) * sizeof(float), tokens = 1024;
  backend->reserve(backend->ops().workspace_bytes + plan.arena_bytes + 2 * flat + 2 * tokens +
                   8 * plan::kDeviceAlignment);
  std::byte* const parameters = backend->allocate(flat, "parameters");
  auto* const gradients = reinterpret_cast<float*>(backend->allocate(flat, "gradients"));
  Executor executor(
      graph,
      plan,
      layout,
      *backend,
      {.arena = backend->allocate(plan.arena_bytes, "arena"), .parameters = parameters});
  HostCopyOf<std::byte> initial(
      *backend, parameters, layout.elements * static_cast<int64_t>(size_of(compute)));
  train::round_numbers(parameters_of(layout), compute, initial.data());
  initial.write();
  // As a training leaves the gaps between gradients.
  HostCopy zeros(*backend, gradients, layout.elements);
  std::fill_n(zeros.data(), layout.elements, 0.0f);
  zeros.write();

  const auto ids = [&](TensorId id, uint32_t purpose_of_ids) {
    const int64_t count = graph.shape(id).elements();
    auto* const to = reinterpret_cast<int32_t*>(backend->allocate(tokens, "ids"));
    HostCopyOf<int32_t> copy(*backend, to, count);
    for (int64_t i = 0; i < count; ++i)
      copy.data()[i] =
          static_cast<int32_t>(bounded_from_word(word_of(purpose_of_ids, static_cast<size_t>(i)),
                                                 static_cast<uint32_t>(at.model.vocabulary)));
    if (purpose_of_ids == 2) copy.data()[3] = -1;  // a target that does not count
    copy.write();
    return reinterpret_cast<const std::byte*>(to);
  };
  const std::byte* const input = ids(graph.inputs[graph::GraphIn::kInput], 1);
  const std::byte* const target = ids(graph.inputs[graph::GraphIn::kTarget], 2);
  const std::span<graph::LaneContext> lane = backend->host_array<graph::LaneContext>(1);
  lane.front() = {
      .seed = 5, .valid_rows = kBatch * graph.loss_rows_per_sample, .gradient_scale = 1};
  const std::span<double> statistics = backend->host_array<double>(graph::kStatisticCount);
  executor.run(lane.front(),
               input,
               target,
               gradients,
               nullptr,
               reinterpret_cast<std::byte*>(statistics.data()));
  HostCopy computed(*backend, gradients, layout.elements);
  const float* const values = computed.read();
  Result result;
  result.statistics.assign(statistics.begin(), statistics.end());
  for (const plan::ParameterSlot& slot : layout.slots) {
    result.padding += slot.padding;
    const float* const begin = values + (slot.frozen ? 0 : slot.offset);
    if (slot.frozen) continue;
    std::transform(begin,
                   begin + slot.elements,
                   std::back_inserter(result.gradients[slot.name]),
                   [](float value) { return std::bit_cast<uint32_t>(value); });
    result.padding_is_zero =
        result.padding_is_zero && std::all_of(begin + slot.elements,
                                              begin + slot.elements + slot.padding,
                                              [](float value) { return value == 0; });
  }
  return result;
}

TEST(PaddedHead, ChangesNoBit) {
  for (const Case& at : cases()) {
    for (const DType compute : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const auto purpose : {graph::Purpose::kTraining, graph::Purpose::kEvaluation}) {
        SCOPED_TRACE(at.name + " in " + name_of(compute));
        const Result exact = run(at, compute, false, purpose),
                     padded = run(at, compute, true, purpose);
        EXPECT_EQ(exact.padding, 0);
        const int64_t rows = (at.model.vocabulary + 63) / 64 * 64 - at.model.vocabulary;
        EXPECT_EQ(padded.padding, rows * (at.model.width + (at.model.head_bias ? 1 : 0)));
        EXPECT_GT(exact.statistics[graph::kLossSum], 0);
        EXPECT_EQ(exact.statistics, padded.statistics);
        EXPECT_TRUE(exact.gradients == padded.gradients);
        EXPECT_TRUE(padded.padding_is_zero);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::exec
