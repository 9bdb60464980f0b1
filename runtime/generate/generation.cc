#include "runtime/generate/generation.h"

#include <algorithm>

namespace lockstep::generate {
namespace {

// Updates the text of the sequence, and ends the sequence if the text contains a stop text.
void update_text(const GenerationLimits& limits, Generation& sequence) {
  if (!limits.text_of) return;
  // Tokenizers drop a space before the first token of a text. Decoding the prompt with the
  // generated tokens keeps the space between them.
  const std::string prompt =
      limits.text_of(std::span(sequence.tokens).first(sequence.prompt_tokens));
  const std::string full_text = limits.text_of(sequence.tokens);
  sequence.text = full_text.starts_with(prompt) ? full_text.substr(prompt.size())
                                                : limits.text_of(sequence.generated());
  size_t first = std::string::npos;
  for (const std::string& stop : limits.stop_texts)
    first = std::min(first, sequence.text.find(stop));
  if (first == std::string::npos) return;
  sequence.text.resize(first);
  sequence.end = Generation::End::kText;
  sequence.done = true;
}

void add_token(const GenerationLimits& limits, int32_t token, Generation& sequence) {
  const auto& ends = limits.end_tokens;
  if (std::ranges::find(ends, token) != ends.end()) {
    sequence.end = Generation::End::kToken;
    sequence.done = true;
    return;
  }
  sequence.tokens.push_back(token);
  update_text(limits, sequence);
  if (static_cast<int64_t>(sequence.generated().size()) >= limits.tokens) sequence.done = true;
}

}  // namespace

void generate(LanguageModel& model,
              TokenSampler& sampler,
              const GenerationLimits& limits,
              std::vector<Generation>& sequences,
              const std::function<void()>& on_step) {
  const auto all_done = [&] {
    return std::ranges::all_of(sequences, [](const Generation& s) { return s.done; });
  };
  std::vector<std::vector<int32_t>> tokens(sequences.size());
  for (uint32_t step = 0; !all_done(); ++step) {
    for (size_t i = 0; i < sequences.size(); ++i) tokens[i] = sequences[i].tokens;
    model.run(tokens);
    for (size_t i = 0; i < sequences.size(); ++i) {
      if (sequences[i].done) continue;
      add_token(limits,
                sampler.sample(model.logits(i), tokens[i], static_cast<uint32_t>(i), step),
                sequences[i]);
    }
    on_step();
  }
}

}  // namespace lockstep::generate
