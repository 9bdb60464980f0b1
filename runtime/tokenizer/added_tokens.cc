#include "runtime/tokenizer/added_tokens.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

AddedToken read_token(const JsonNode& node, const Normalizer& normalizer, GrowthLimit& limit) {
  AddedToken token;
  token.content = node.at("content").text();
  token.special = node.flag_or("special", false);
  token.single_word = node.flag_or("single_word", false);
  token.lstrip = node.flag_or("lstrip", false);
  token.rstrip = node.flag_or("rstrip", false);
  token.normalized = node.flag_or("normalized", !token.special);
  token.shown = token.normalized ? normalizer.apply(token.content, limit) : token.content;
  if (token.shown.empty() && !token.content.empty())
    node.at("content").fail(
        "is empty after normalization; allowed: a token that is not, or normalized: false");
  return token;
}

bool is_class(std::string_view text, size_t at, CharClass wanted) {
  return (char_class_table()[decode_char(text.data() + at).code] & wanted) != 0;
}

}  // namespace

AddedTokens::AddedTokens(const JsonNode& node,
                         const Vocabulary& vocabulary,
                         const Normalizer& normalizer)
    : name_(node.name()) {
  const size_t count = node.is_null() ? 0 : node.elements();
  size_t given = 0, shown = 0;  // bytes of all tokens, which count as one text
  for (size_t i = 0; i < count; ++i) given += node.element(i).at("content").text().size();
  GrowthLimit limit = GrowthLimit::of_text(given);
  auto next_id = static_cast<uint32_t>(vocabulary.size());
  std::unordered_map<std::string, uint32_t> normal_forms;
  for (size_t i = 0; i < count; ++i) {
    const JsonNode element = node.element(i);
    AddedToken token = read_token(element, normalizer, limit);
    if (token.content.empty()) continue;
    limit.enter(name_);
    limit.check(shown += token.shown.size());
    std::optional<uint32_t> id = vocabulary.id_of(token.content);
    if (const auto found = ids_.find(token.content); found != ids_.end()) id = found->second;
    if (!id) {
      id = next_id++;
      if (const std::string* other = vocabulary.token_of(*id))
        element.at("content").fail(fmt::format(
            "needs the next id, {}, which '{}' has in the vocabulary; new tokens are allowed only "
            "if the vocabulary's ids have no gaps",
            *id,
            *other));
    }
    // The `tokenizers` package picks one of the two at random.
    if (token.normalized && normal_forms.emplace(token.shown, *id).first->second != *id)
      element.at("content").fail(
          fmt::format("is normalized to '{}', like an earlier token; tokens must differ after "
                      "normalization",
                      token.shown));
    if (token.special) special_.insert(token.content);
    ids_[token.content] = *id;
    largest_id_ = std::max(largest_id_, *id);
    tokens_[*id] = std::move(token);
  }
  std::vector<ByteTrie::Entry> in_text, in_normalized;
  for (const auto& [id, token] : tokens_)
    (token.normalized ? in_normalized : in_text).emplace_back(token.shown, id);
  in_text_ = ByteTrie(std::move(in_text));
  in_normalized_ = ByteTrie(std::move(in_normalized));
}

const AddedToken* AddedTokens::token_of(uint32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

bool AddedTokens::take(uint32_t id,
                       std::string_view text,
                       size_t min_begin,
                       GrowthLimit& limit,
                       size_t* begin,
                       size_t* end) const {
  const AddedToken& token = tokens_.at(id);
  if (token.single_word) {
    if (*begin > 0 && is_class(text, last_char_begin(text.substr(0, *begin)), kWord)) return false;
    if (*end < text.size() && is_class(text, *end, kWord)) return false;
  }
  if (token.lstrip) {
    while (*begin > min_begin) {
      const size_t before = last_char_begin(text.substr(0, *begin));
      if (!is_class(text, before, kSpace)) break;
      *begin = before;
    }
    *begin = std::max(*begin, min_begin);
  }
  while (token.rstrip && *end < text.size() && is_class(text, *end, kSpace)) {
    *end += decode_char(text.data() + *end).bytes;
    limit.step(1);
  }
  return true;
}

}  // namespace lockstep::tokenizer
