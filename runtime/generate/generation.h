#pragma once
// Generates text with a language model, token by token.

#include <functional>
#include <string>
#include <vector>

#include "runtime/generate/language_model.h"
#include "runtime/generate/token_sampler.h"

namespace lockstep::generate {

// A sequence of tokens that is being generated.
struct Generation {
  // Why a sequence ended: the limit of tokens, an end token, or a stop text.
  enum class End { kLength, kToken, kText };

  std::vector<int32_t> tokens;  // including those of the prompt
  size_t prompt_tokens = 0;
  // The generated text, without an end token, up to the first stop text. Empty if tokens are no
  // text.
  std::string text;
  End end = End::kLength;
  bool done = false;

  std::span<const int32_t> generated() const { return std::span(tokens).subspan(prompt_tokens); }
};

struct GenerationLimits {
  int64_t tokens = 256;  // max generated tokens of each sequence
  std::vector<int32_t> end_tokens = {};
  std::vector<std::string> stop_texts = {};
  // Converts tokens to text; null if tokens are no text.
  std::function<std::string(std::span<const int32_t>)> text_of = nullptr;
};

// Generates until every sequence is done. Calls `on_step` after each token of all sequences.
void generate(LanguageModel& model,
              TokenSampler& sampler,
              const GenerationLimits& limits,
              std::vector<Generation>& sequences,
              const std::function<void()>& on_step);

}  // namespace lockstep::generate
