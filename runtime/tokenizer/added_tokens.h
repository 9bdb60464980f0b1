#pragma once
// Tokens that are split off a text before any other step: the added_tokens of tokenizer.json.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "runtime/tokenizer/byte_trie.h"
#include "runtime/tokenizer/json_node.h"
#include "runtime/tokenizer/normalizer.h"
#include "runtime/tokenizer/vocabulary.h"

namespace lockstep::tokenizer {

struct AddedToken {
  std::string content;
  // The text that it decodes to: its normalized form if it is searched for in normalized text.
  std::string shown;
  bool special = false;      // decoding may skip it
  bool single_word = false;  // matches only if no word character is next to it
  bool lstrip = false;       // also takes the spaces before it; `rstrip`: those after it
  bool rstrip = false;
  bool normalized = false;  // searched for in normalized text
};

class AddedTokens {
 public:
  // Reads the member "added_tokens". A token that neither the vocabulary nor the list has had
  // before gets the next free id, as in the `tokenizers` package. Throws DataError.
  AddedTokens(const JsonNode& node, const Vocabulary& vocabulary, const Normalizer& normalizer);

  // Null if no added token has the id.
  const AddedToken* token_of(uint32_t id) const;
  const std::unordered_map<std::string, uint32_t>& ids() const { return ids_; }
  bool is_special(const std::string& token) const { return special_.contains(token); }
  uint32_t largest_id() const { return largest_id_; }

  // Calls on_text(begin, end) and on_token(id) for the parts of the text and the tokens between
  // them, in order.
  template <typename OnText, typename OnToken>
  void split(std::string_view text,
             bool normalized,
             GrowthLimit& limit,
             OnText&& on_text,
             OnToken&& on_token) const {
    const ByteTrie& trie = normalized ? in_normalized_ : in_text_;
    if (!trie.empty()) limit.enter(name_);
    size_t begin = 0;  // of the text that has not been passed on
    if (!trie.empty())
      for (size_t at = next_candidate(trie, text, 0); at < text.size();) {
        const ByteTrie::Match match = trie.longest_prefix(text.substr(at), limit);
        if (match.bytes == 0) {
          at = next_candidate(trie, text, at + 1);
          continue;
        }
        size_t end = at + match.bytes;
        if (size_t from = at; take(match.value, text, begin, limit, &from, &end)) {
          if (begin < from) on_text(begin, from);
          limit.enter(name_);
          if (from < end) on_token(match.value);  // otherwise the token before has taken all of it
          begin = end;
        }
        at = next_candidate(trie, text, at + match.bytes);
      }
    if (begin < text.size()) on_text(begin, text.size());
  }

 private:
  static size_t next_candidate(const ByteTrie& trie, std::string_view text, size_t at) {
    while (at < text.size() && !trie.begins_some(static_cast<uint8_t>(text[at]))) ++at;
    return at;
  }

  // Whether the token at [*begin, *end) matches. Widens the range by the spaces that the token
  // strips, but never to before `min_begin`.
  bool take(uint32_t id,
            std::string_view text,
            size_t min_begin,
            GrowthLimit& limit,
            size_t* begin,
            size_t* end) const;

  std::string name_;  // name of the member, for messages

  std::unordered_map<uint32_t, AddedToken> tokens_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::unordered_set<std::string> special_;
  ByteTrie in_text_, in_normalized_;
  uint32_t largest_id_ = 0;
};

}  // namespace lockstep::tokenizer
