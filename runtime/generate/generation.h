#pragma once
// Texts that a language model goes on with, token by token.

#include <functional>
#include <string>
#include <vector>

#include "runtime/generate/language_model.h"
#include "runtime/generate/token_sampler.h"

namespace lockstep {

// A sequence that grows.
struct Generation {
  enum class End { kLength, kToken, kText };  // so many tokens, an end token, a stop text

  std::vector<int32_t> tokens;  // with those of the prompt
  size_t prompt_tokens = 0;
  std::string text;  // of what was generated, without an end token and from a stop text on; empty
                     // where tokens are no text
  End end = End::kLength;
  bool done = false;

  std::span<const int32_t> generated() const { return std::span(tokens).subspan(prompt_tokens); }
};

struct GenerationLimits {
  int64_t tokens = 256;  // of each sequence, at most
  std::vector<int32_t> end_tokens = {};
  std::vector<std::string> stop_texts = {};
  // The text of tokens; none: tokens are no text.
  std::function<std::string(std::span<const int32_t>)> text_of = nullptr;
};

// Lets all sequences grow until each is done. `said` is told after each step, with all of them.
void generate(LanguageModel& model,
              TokenSampler& sampler,
              const GenerationLimits& limits,
              std::vector<Generation>& sequences,
              const std::function<void()>& said);

}  // namespace lockstep
