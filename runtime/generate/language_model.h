#pragma once
// A language model with its weights, ready to tell what follows.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/checkpoint/state.h"
#include "runtime/config/run_config.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/executor.h"

namespace lockstep {

class LanguageModel {
 public:
  // Fills the parameters that the slices name in a flat buffer, fp32.
  using ReadWeights = std::function<void(const std::vector<NamedSlice>& slices, float* flat)>;

  // `config` is resolved. For `sequences` at once, of `context` tokens at most.
  LanguageModel(std::unique_ptr<Backend> backend,
                const ModelConfig& config,
                int64_t vocabulary,
                int64_t sequences,
                int64_t context,
                const ReadWeights& read_weights);

  // Computes the logits after the last token of each sequence, of which the last `context` count.
  // tokens: one list for each of at most `sequences`, none empty.
  void run(const std::vector<std::vector<int32_t>>& tokens);
  // (V) of a sequence of the last run.
  const float* logits(size_t sequence) const;

 private:
  int64_t sequences_, context_, vocabulary_;
  std::unique_ptr<Backend> backend_;
  ParameterLayout layout_;
  Graph graph_;
  ProgramPlan plan_;
  std::optional<Executor> executor_;
  std::span<int32_t> window_;           // (sequences, context), as the host has it
  std::byte* device_window_ = nullptr;  // and the device
  std::span<LaneContext> lane_;
  std::span<float> logits_;   // (sequences, context, V)
  std::vector<size_t> last_;  // of each sequence the place of its last token
};

}  // namespace lockstep
