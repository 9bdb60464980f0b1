#include "runtime/generate/language_model.h"

#include <algorithm>

#include "models/registry.h"
#include "runtime/base/error.h"
#include "runtime/exec/host_copy.h"
#include "runtime/plan/layout.h"
#include "runtime/train/checkpoints/initialize.h"

namespace lockstep {

LanguageModel::LanguageModel(std::unique_ptr<Backend> backend,
                             const ModelConfig& config,
                             int64_t vocabulary,
                             int64_t sequences,
                             int64_t context,
                             const ReadWeights& read_weights)
    : sequences_(sequences),
      context_(context),
      vocabulary_(vocabulary),
      backend_(std::move(backend)),
      layout_(make_layout(build_model(config, {}, 1, Purpose::kTraining), 1)),
      graph_(build_model(config, {}, sequences, Purpose::kInference, context)) {
  const OpSet& ops = backend_->ops();
  plan_ = plan_program(
      graph_, [&](const Graph& graph, const Op& op) { return ops.op_workspace_bytes(graph, op); });
  const size_t parameter_bytes = static_cast<size_t>(layout_.elements) * sizeof(float);
  const auto window_tokens = static_cast<size_t>(sequences * context);
  const size_t window_bytes = window_tokens * sizeof(int32_t);
  backend_->reserve(ops.workspace_bytes + parameter_bytes + plan_.arena_bytes + window_bytes +
                    3 * kDeviceAlignment);
  std::byte* parameters = backend_->allocate(parameter_bytes, kParametersRow);
  HostCopy weights(*backend_, reinterpret_cast<float*>(parameters), layout_.elements);
  read_weights(named_slices(layout_), weights.data());
  weights.write();
  executor_.emplace(graph_,
                    plan_,
                    layout_,
                    *backend_,
                    ExecutorMemory{backend_->allocate(plan_.arena_bytes, kArenaRow), parameters});
  window_ = backend_->host_array<int32_t>(window_tokens);
  device_window_ = backend_->allocate(window_bytes, "the window");
  lane_ = backend_->host_array<LaneContext>(1);
  logits_ = backend_->host_array<float>(window_tokens * static_cast<size_t>(vocabulary_));
}

void LanguageModel::run(const std::vector<std::vector<int32_t>>& tokens) {
  LOCKSTEP_CHECK(static_cast<int64_t>(tokens.size()) <= sequences_);
  const auto context = static_cast<size_t>(context_);
  std::fill(window_.begin(), window_.end(), 0);
  last_.clear();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const size_t length = std::min(tokens[i].size(), context);
    std::copy(tokens[i].end() - static_cast<std::ptrdiff_t>(length),
              tokens[i].end(),
              window_.begin() + static_cast<std::ptrdiff_t>(i * context));
    last_.push_back(i * context + length - 1);
  }
  const auto* window = reinterpret_cast<const std::byte*>(window_.data());
  backend_->copy(window, device_window_, window_.size_bytes());
  executor_->run(lane_.front(),
                 device_window_,
                 nullptr,
                 nullptr,
                 nullptr,
                 reinterpret_cast<std::byte*>(logits_.data()));
  backend_->synchronize();
}

const float* LanguageModel::logits(size_t sequence) const {
  return &logits_[last_[sequence] * static_cast<size_t>(vocabulary_)];
}

}  // namespace lockstep
