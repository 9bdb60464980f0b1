#include "launcher/text/generated_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

namespace lockstep::launcher {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // for incomplete characters

std::string numbers(std::span<const int32_t> tokens) {
  std::string text;
  for (const int32_t token : tokens) text += fmt::format("{} ", token);
  return text;
}

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0u) == 0x80u; }

}  // namespace

std::vector<int32_t> TokenTexts::tokens_of(const std::string& text, bool with_special) const {
  if (tokenizer == nullptr) {
    const auto* first = reinterpret_cast<const unsigned char*>(text.data());
    return {first, first + text.size()};
  }
  std::vector<uint32_t> ids;
  tokenizer->encoder()->encode(text, with_special, &ids);
  return {ids.begin(), ids.end()};
}

std::string TokenTexts::text_of(std::span<const int32_t> tokens) const {
  if (tokenizer == nullptr) return {tokens.begin(), tokens.end()};
  const std::vector<uint32_t> ids(tokens.begin(), tokens.end());
  return tokenizer->decode(ids, /*skip_special=*/true);
}

GenerationPrinter::GenerationPrinter(const TokenTexts& texts,
                                     const std::vector<std::string>& stop_texts,
                                     bool prompts)
    : texts_(texts), prompts_(prompts) {
  for (const std::string& stop : stop_texts) held_ = std::max(held_, stop.size());
}

void GenerationPrinter::begin(const generate::Generation& sequence) {
  printed_ = 0;
  if (!prompts_) return;
  const auto prompt = std::span(sequence.tokens).first(sequence.prompt_tokens);
  print(texts_.has_texts() ? texts_.text_of(prompt) : numbers(prompt));
}

void GenerationPrinter::go_on(const generate::Generation& sequence) {
  const bool has_texts = texts_.has_texts();
  const std::string text = has_texts ? sequence.text : numbers(sequence.generated());
  const size_t end = sequence.done || !has_texts ? text.size() : certain(text);
  if (end <= printed_) return;
  print(std::string_view(text).substr(printed_, end - printed_));
  printed_ = end;
}

size_t GenerationPrinter::certain(const std::string& text) const {
  size_t end = text.size() - std::min(text.size(), held_);
  if (texts_.tokenizer == nullptr) return end;
  // Each byte of an incomplete character may be a replacement character.
  size_t whole = text.size();
  while (std::string_view(text).substr(0, whole).ends_with(kReplacement))
    whole -= kReplacement.size();
  end = std::min(end, whole);
  while (end > 0 && end < text.size() && continues_character(text[end])) --end;
  return end;
}

}  // namespace lockstep::launcher
