#include "runtime/tokenizer/added_tokens.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/tokenizer/unicode.h"

namespace lockstep {
namespace {

AddedToken read_token(const JsonPlace& place, const Normalizer& normalizer, GrowthLimit& limit) {
  AddedToken token;
  token.content = place.at("content").text();
  token.special = place.flag_or("special", false);
  token.single_word = place.flag_or("single_word", false);
  token.lstrip = place.flag_or("lstrip", false);
  token.rstrip = place.flag_or("rstrip", false);
  token.normalized = place.flag_or("normalized", !token.special);
  token.shown = token.normalized ? normalizer.apply(token.content, limit) : token.content;
  if (token.shown.empty() && !token.content.empty())
    place.at("content").fail(
        "nothing is left of it once it is normalized; allowed: a token that is found in such text, "
        "or normalized: false");
  return token;
}

bool is_class(std::string_view text, size_t at, CharClass wanted) {
  return (char_class_table()[decode_char(text.data() + at).code] & wanted) != 0;
}

}  // namespace

AddedTokens::AddedTokens(const JsonPlace& place,
                         const Vocabulary& vocabulary,
                         const Normalizer& normalizer)
    : name_(place.name()) {
  const size_t count = place.is_null() ? 0 : place.elements();
  size_t given = 0, shown = 0;  // bytes of all tokens, which count as one text
  for (size_t i = 0; i < count; ++i) given += place.element(i).at("content").text().size();
  GrowthLimit limit = GrowthLimit::of_text(given);
  auto next_id = static_cast<uint32_t>(vocabulary.size());
  std::unordered_map<std::string, uint32_t> normal_forms;
  for (size_t i = 0; i < count; ++i) {
    const JsonPlace element = place.element(i);
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
            "gets the next id, {}, which '{}' has in the vocabulary; allowed: new tokens "
            "where the vocabulary's ids have no holes",
            *id,
            *other));
    }
    // The package takes one of them by chance.
    if (token.normalized && normal_forms.emplace(token.shown, *id).first->second != *id)
      element.at("content").fail(fmt::format(
          "is '{}' once it is normalized, as a token before it; allowed: tokens that differ "
          "then",
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
                       size_t least,
                       GrowthLimit& limit,
                       size_t* begin,
                       size_t* end) const {
  const AddedToken& token = tokens_.at(id);
  if (token.single_word) {
    if (*begin > 0 && is_class(text, last_char_begin(text.substr(0, *begin)), kWord)) return false;
    if (*end < text.size() && is_class(text, *end, kWord)) return false;
  }
  if (token.lstrip) {
    while (*begin > least) {
      const size_t before = last_char_begin(text.substr(0, *begin));
      if (!is_class(text, before, kSpace)) break;
      *begin = before;
    }
    *begin = std::max(*begin, least);
  }
  while (token.rstrip && *end < text.size() && is_class(text, *end, kSpace)) {
    *end += decode_char(text.data() + *end).bytes;
    limit.step(1);
  }
  return true;
}

}  // namespace lockstep
