// WordPiece: greedy longest match. A word becomes the longest token with which it begins, then the
// longest token that continues it, and so on. If no token continues it, the whole word is unknown.
#include <utility>

#include "runtime/tokenizer/byte_trie.h"
#include "runtime/tokenizer/token_model.h"

namespace lockstep::tokenizer {
namespace {

class WordPiece final : public TokenModel {
 public:
  WordPiece(Vocabulary vocabulary, std::string_view prefix, uint32_t unknown, size_t max_chars)
      : TokenModel(std::move(vocabulary)), unknown_(unknown), max_chars_(max_chars) {
    std::vector<ByteTrie::Entry> first, later;
    this->vocabulary().for_each([&](std::string_view token, uint32_t id) {
      first.emplace_back(token, id);
      if (token.starts_with(prefix)) later.emplace_back(token.substr(prefix.size()), id);
    });
    first_ = ByteTrie(std::move(first));
    later_ = ByteTrie(std::move(later));
  }

  void encode(std::string_view word,
              ModelScratch& scratch,
              std::vector<uint32_t>* ids) const override {
    size_t chars = 0;
    for (const char c : word) chars += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
    const size_t before = ids->size();
    for (size_t i = 0; i < word.size() && chars <= max_chars_;) {
      const ByteTrie::Match match =
          (i == 0 ? first_ : later_).longest_prefix(word.substr(i), *scratch.limit);
      if (match.bytes == 0) break;
      ids->push_back(match.value);
      i += match.bytes;
      if (i == word.size()) return;
    }
    ids->resize(before);
    ids->push_back(unknown_);
  }

 private:
  ByteTrie first_, later_;  // tokens that begin a word, and those that continue it
  uint32_t unknown_;
  size_t max_chars_;  // longer words are unknown
};

}  // namespace

std::unique_ptr<TokenModel> make_word_piece(const JsonNode& node) {
  Vocabulary vocabulary = read_vocabulary(node.at("vocab"));
  const auto unknown = vocabulary.id_of(node.at("unk_token").text());
  if (!unknown) node.at("unk_token").refuse("a token of model.vocab");
  const uint32_t max_chars = node.at("max_input_chars_per_word").id();
  return std::make_unique<WordPiece>(
      std::move(vocabulary), node.at("continuing_subword_prefix").text(), *unknown, max_chars);
}

}  // namespace lockstep::tokenizer
