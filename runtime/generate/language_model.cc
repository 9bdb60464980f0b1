#include "runtime/generate/language_model.h"

#include <algorithm>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/memory_plan.h"
#include "runtime/train/number_types.h"

namespace lockstep::generate {
namespace {

// The number of tokens in one run of many_: enough for fast matrix products, few enough to save
// memory.
constexpr int64_t kTokensAtOnce = 128;

constexpr const char* kCacheName = "the cache of keys and values";

}  // namespace

graph::GraphOptions LanguageModel::options(graph::Purpose purpose) const {
  graph::GraphOptions options(purpose);
  options.compute = compute_;
  return options;
}

LanguageModel::Program LanguageModel::program(const models::OpenedModel& model,
                                              int64_t tokens,
                                              bool head) const {
  graph::GraphOptions options = this->options(graph::Purpose::kInference);
  options.packed = true;
  options.cached_tokens = context_;
  options.head = head;
  Program program{.tokens = tokens,
                  .graph = model.build({}, sequences_, options, tokens),
                  .plan = {},
                  .executor = {},
                  .input = {},
                  .result = {}};
  const exec::OpSet& ops = backend_->ops();
  program.plan =
      plan::plan_program(program.graph, [&](const graph::Graph& graph, const graph::Op& op) {
        return ops.op_workspace_bytes(graph, op);
      });
  return program;
}

LanguageModel::LanguageModel(std::unique_ptr<exec::Backend> backend,
                             const models::OpenedModel& model,
                             DType compute,
                             int64_t vocabulary,
                             int64_t sequences,
                             int64_t context,
                             const ReadWeights& read_weights)
    : compute_(compute),
      sequences_(sequences),
      context_(context),
      vocabulary_(vocabulary),
      backend_(std::move(backend)),
      layout_(plan::make_layout(model.build({}, 1, options(graph::Purpose::kTraining)), 1)),
      many_(program(model, std::min(context, kTokensAtOnce), false)),
      last_(program(model, 1, true)),
      windows_(static_cast<size_t>(sequences)),
      cached_(windows_.size()),
      logits_(static_cast<size_t>(sequences * vocabulary)) {
  LOCKSTEP_CHECK(many_.plan.state_bytes == last_.plan.state_bytes);
  const size_t arena_bytes = std::max(many_.plan.arena_bytes, last_.plan.arena_bytes);
  const auto input_bytes = [&](const Program& program) {
    return static_cast<size_t>(sequences * 3 * program.tokens) * sizeof(int32_t);
  };
  backend_->reserve(backend_->ops().workspace_bytes + weight_bytes(layout_) + arena_bytes +
                    cache_bytes() + input_bytes(many_) + input_bytes(last_) +
                    5 * plan::kDeviceAlignment);
  std::byte* const parameters = allocate_weights(*backend_, layout_, read_weights);
  const exec::ExecutorMemory memory = {
      .arena = backend_->allocate(arena_bytes, plan::name_of(plan::RowKind::kArena)),
      .parameters = parameters,
      .states = backend_->allocate(cache_bytes(), kCacheName)};
  for (Program* program : {&many_, &last_}) {
    program->executor.emplace(program->graph, program->plan, layout_, *backend_, memory);
    program->input = backend_->host_array<int32_t>(input_bytes(*program) / sizeof(int32_t));
    program->device_input = backend_->allocate(input_bytes(*program), "tokens");
    const graph::Tensor& result = program->graph[program->graph.result];
    program->result = backend_->host_array<std::byte>(result.bytes());
  }
  lane_ = backend_->host_array<graph::LaneContext>(1);
}

void LanguageModel::run(const std::vector<std::vector<int32_t>>& tokens) {
  LOCKSTEP_CHECK(static_cast<int64_t>(tokens.size()) <= sequences_);
  std::vector<size_t> before_last(windows_.size()), ends(windows_.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    LOCKSTEP_CHECK(!tokens[i].empty());
    const size_t length = std::min(tokens[i].size(), static_cast<size_t>(context_));
    const auto window = std::span(tokens[i]).last(length);
    const auto first_difference = std::ranges::mismatch(window, windows_[i]).in1;
    const auto same = static_cast<size_t>(first_difference - window.begin());
    cached_[i] = std::min({cached_[i], same, length - 1});
    windows_[i].assign(window.begin(), window.end());
    before_last[i] = length - 1;
    ends[i] = length;
  }
  for (size_t i = tokens.size(); i < windows_.size(); ++i) cached_[i] = 0;
  const auto ready = [&] {
    for (size_t i = 0; i < tokens.size(); ++i)
      if (cached_[i] < before_last[i]) return false;
    return true;
  };
  while (!ready()) run(many_, before_last);
  run(last_, ends);
  train::widen_numbers(last_.result.data(), last_.graph[last_.graph.result].dtype, logits_);
}

void LanguageModel::run(Program& program, const std::vector<size_t>& ends) {
  const auto max_tokens = static_cast<size_t>(program.tokens);
  for (size_t i = 0; i < windows_.size(); ++i) {
    const auto tokens = program.input.subspan(3 * i * max_tokens, max_tokens);
    const auto documents = program.input.subspan((3 * i + 1) * max_tokens, max_tokens);
    const auto positions = program.input.subspan((3 * i + 2) * max_tokens, max_tokens);
    const size_t begin = cached_[i], count = std::min(max_tokens, std::max(ends[i], begin) - begin);
    std::ranges::fill(tokens, 0);
    std::ranges::fill(documents, -1);
    std::ranges::fill(positions, 0);
    std::copy_n(windows_[i].begin() + static_cast<std::ptrdiff_t>(begin), count, tokens.begin());
    std::fill_n(documents.begin(), count, 0);
    std::iota(positions.begin(),
              positions.begin() + static_cast<std::ptrdiff_t>(count),
              static_cast<int32_t>(begin));
    cached_[i] += count;
  }
  const auto* input = reinterpret_cast<const std::byte*>(program.input.data());
  backend_->copy(input, program.device_input, program.input.size_bytes());
  program.executor->run(
      lane_.front(), program.device_input, nullptr, nullptr, nullptr, program.result.data());
  backend_->synchronize();
}

const float* LanguageModel::logits(size_t sequence) const {
  return &logits_[sequence * static_cast<size_t>(vocabulary_)];
}

}  // namespace lockstep::generate
