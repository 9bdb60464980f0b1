#include "runtime/data/text/conversation_tokens.h"

#include <algorithm>
#include <span>

namespace lockstep::data {
namespace {

bool is_white_space(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

}  // namespace

ConversationTokens ConversationEncoder::encode(const Conversation& conversation,
                                               tokenizer::TokenEncoder& encoder) const {
  if (conversation.uses_texts(files_.chat_template.has_value()))
    return encode_texts(conversation, encoder);
  const AnsweredText answered = render_answers(files_, conversation);
  ConversationTokens tokens;
  encoder.encode(answered.text, /*with_special=*/false, &tokens.ids);
  tokens.counted.assign(tokens.ids.size(), whole_loss_ ? 1 : 0);
  const bool marked = files_.chat_template->marks_generation();
  for (const TextSpan& span : whole_loss_ ? answered.left_out : answered.answers) {
    if (span.begin == span.end) continue;
    const size_t begin = tokens_before(answered.text, tokens.ids, span.begin, false, encoder);
    size_t end = tokens_before(answered.text, tokens.ids, span.end, true, encoder);
    if (!marked) end = end_of_turn(tokens.ids, begin, end);
    for (size_t i = begin; i < end; ++i) tokens.counted[i] = whole_loss_ ? 0 : 1;
  }
  return tokens;
}

ConversationTokens ConversationEncoder::encode_texts(const Conversation& conversation,
                                                     tokenizer::TokenEncoder& encoder) const {
  const std::string end = files_.special_token("eos_token");
  const auto known_end = end.empty() ? std::nullopt : tokenizer_.id_of(end);
  const bool has_end = known_end.has_value();
  const uint32_t end_id = known_end.value_or(0);
  const auto encoded = [&](const std::string& text, bool with_special = true) {
    std::vector<uint32_t> ids;
    encoder.encode(text, with_special, &ids);
    return ids;
  };
  std::string text = conversation.prompt + conversation.answer;
  if (has_end && !conversation.answer.ends_with(end)) text += end;
  ConversationTokens tokens{encoded(text), {}};
  std::vector<uint32_t>& ids = tokens.ids;
  const auto ends_twice = [&](const std::vector<uint32_t>& of) {
    return of.size() > 1 && of.back() == end_id && of[of.size() - 2] == end_id;
  };
  // If the tokenizer has added a second one, remove it.
  if (has_end && ends_twice(ids) && !ends_twice(encoded(text, false))) ids.pop_back();
  tokens.counted.assign(ids.size(), 1);
  if (whole_loss_) return tokens;
  const std::vector<uint32_t> prompt = encoded(conversation.prompt);
  const auto shared = std::ranges::mismatch(prompt, ids).in1 - prompt.begin();
  std::fill_n(tokens.counted.begin(), shared, uint8_t{0});
  return tokens;
}

// Encodes the text up to `byte` by itself. These are usually the first tokens of the whole text.
// But if a token of the whole text crosses `byte`, the last ones differ; then the lengths of
// decoded tokens tell which token is at `byte`.
size_t ConversationEncoder::tokens_before(const std::string& text,
                                          const std::vector<uint32_t>& ids,
                                          size_t byte,
                                          bool crossing,
                                          tokenizer::TokenEncoder& encoder) const {
  if (byte == 0) return 0;
  if (byte >= text.size()) return ids.size();
  std::vector<uint32_t> first;
  encoder.encode(std::string_view(text).substr(0, byte), false, &first);
  const auto same = static_cast<size_t>(std::ranges::mismatch(first, ids).in1 - first.begin());
  if (same == first.size()) return same;
  const auto bytes_of = [&](const std::vector<uint32_t>& of, size_t count) {
    return tokenizer_.decode(std::span(of).first(count), /*skip_special=*/false).size();
  };
  const size_t wanted = bytes_of(first, first.size());
  size_t token = same;
  while (token < ids.size() && bytes_of(ids, token + 1) <= wanted) ++token;
  return crossing && token < ids.size() && bytes_of(ids, token) < wanted ? token + 1 : token;
}

size_t ConversationEncoder::end_of_turn(const std::vector<uint32_t>& ids,
                                        size_t begin,
                                        size_t end) const {
  size_t last = end;
  while (last > begin) {
    const std::span<const uint32_t> token(&ids[last - 1], 1);
    const std::string shown = tokenizer_.decode(token, /*skip_special=*/false);
    if (tokenizer_.decode(token, /*skip_special=*/true).empty() && !shown.empty()) return last;
    if (!is_white_space(shown)) break;
    --last;
  }
  return end;
}

}  // namespace lockstep::data
