#pragma once
// A language model with its weights, ready to predict the next token.
//
// Keys and values of the tokens that it has processed stay in a cache (cached_attention.h). Two
// programs share the cache: `many_` processes many tokens at a time without computing logits;
// `last_` processes the last token of each sequence and computes its logits.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/registry.h"
#include "runtime/exec/executor.h"
#include "runtime/generate/weights.h"

namespace lockstep::generate {

class LanguageModel {
 public:
  // `model` must be resolved. Weights, cache and activations have the type `compute`. Processes
  // batches of `sequences` sequences with at most `context` tokens each.
  LanguageModel(std::unique_ptr<exec::Backend> backend,
                const models::OpenedModel& model,
                DType compute,
                int64_t vocabulary,
                int64_t sequences,
                int64_t context,
                const ReadWeights& read_weights);

  // Computes the logits after the last token of each sequence. Only the last `context` tokens of a
  // sequence count. `tokens` has at most `sequences` lists, none of them empty. If a sequence
  // begins as in the previous run, only the rest is computed. If a sequence is longer than the
  // context, its window moves with each token, and the whole window is computed again.
  void run(const std::vector<std::vector<int32_t>>& tokens);
  // The logits (V) of a sequence in the last run.
  const float* logits(size_t sequence) const;

  size_t cache_bytes() const { return last_.plan.state_bytes; }

 private:
  // A graph that processes `tokens` tokens of each sequence at a time.
  struct Program {
    int64_t tokens = 0;
    graph::Graph graph;
    plan::ProgramPlan plan;
    std::optional<exec::Executor> executor;
    std::span<int32_t> input;           // (sequences, 3, tokens), packed; on the host
    std::byte* device_input = nullptr;  // on the device
    std::span<std::byte> result;        // of the compute type
  };

  graph::GraphOptions options(graph::Purpose purpose) const;
  Program program(const models::OpenedModel& model, int64_t tokens, bool head) const;
  // Processes the next tokens of each window, up to the positions `ends`.
  void run(Program& program, const std::vector<size_t>& ends);

  DType compute_;
  int64_t sequences_, context_, vocabulary_;
  std::unique_ptr<exec::Backend> backend_;
  plan::ParameterLayout layout_;
  Program many_, last_;
  std::span<graph::LaneContext> lane_;
  // For each sequence: the tokens that count, and how many of them are in the cache.
  std::vector<std::vector<int32_t>> windows_;
  std::vector<size_t> cached_;
  std::vector<float> logits_;  // (sequences, V)
};

}  // namespace lockstep::generate
