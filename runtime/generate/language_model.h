#pragma once
// A language model with its weights, ready to tell what follows.
//
// Keys and values of the tokens that it has seen stay in a cache (cached_attention.h). Two programs
// work on it: one reads many tokens at a time, and says nothing of what follows; the other reads the
// last token of each sequence, and ends in its logits.

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
  // tokens: one list for each of at most `sequences`, none empty. Of a sequence that begins as in
  // the last run only the rest is computed; one that outgrows the context moves in it with each
  // token, and all that counts is computed anew.
  void run(const std::vector<std::vector<int32_t>>& tokens);
  // (V) of a sequence of the last run.
  const float* logits(size_t sequence) const;

  size_t cache_bytes() const { return last_.plan.state_bytes; }

 private:
  // A graph for `tokens` tokens of each sequence at a time.
  struct Program {
    int64_t tokens = 0;
    Graph graph;
    ProgramPlan plan;
    std::optional<Executor> executor;
    std::span<int32_t> input;           // (sequences, 3, tokens) packed, as the host has it
    std::byte* device_input = nullptr;  // and the device
    std::span<float> result;
  };

  Program program(const ModelConfig& config, int64_t tokens, bool head) const;
  // Runs it on the next tokens of each window, up to `ends`.
  void run(Program& program, const std::vector<size_t>& ends);

  int64_t sequences_, context_, vocabulary_;
  std::unique_ptr<Backend> backend_;
  ParameterLayout layout_;
  Program many_, last_;
  std::span<LaneContext> lane_;
  // Of each sequence: the tokens that count, and how many of them the cache has.
  std::vector<std::vector<int32_t>> windows_;
  std::vector<size_t> cached_;
};

}  // namespace lockstep
