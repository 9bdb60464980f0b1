#pragma once
// The model of a tokenizer, which converts a word to tokens.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/tokenizer/growth_limit.h"
#include "runtime/tokenizer/json_node.h"
#include "runtime/tokenizer/vocabulary.h"

namespace lockstep::tokenizer {

// Memory that a thread reuses from word to word. Each model uses it in its own way.
struct ModelScratch {
  struct Symbol {
    uint32_t id;
    int32_t before, after;  // indices of its neighbours; -1: none
    uint32_t rank;          // of the pair that it forms with the symbol after it
  };
  // The best split of a word up to one of its bytes.
  struct Path {
    double score;
    int32_t begin;  // of the last token; -1: no split ends here
    uint32_t id;
  };
  GrowthLimit* limit = nullptr;  // of the text that the words belong to
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;
  std::vector<Path> paths;
};

// Immutable: any number of threads may use it, each with its own scratch memory.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Appends the ids of a word that is not empty. Throws DataError if the word has none.
  virtual void encode(std::string_view word,
                      ModelScratch& scratch,
                      std::vector<uint32_t>* ids) const = 0;

  // Whether words should come as bytes if a byte-level pre-tokenizer would replace bytes by
  // characters.
  virtual bool wants_bytes() const { return false; }
  // Declares that words come as bytes. Must be called before the first word.
  virtual void take_bytes() {}

  const Vocabulary& vocabulary() const { return vocabulary_; }
  // For messages: "FILE: model (BPE)".
  const std::string& name() const { return name_; }

 protected:
  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

 private:
  friend std::unique_ptr<TokenModel> make_token_model(const JsonNode& node);

  std::string name_;
  Vocabulary vocabulary_;
};

// Reads the member "model". Throws DataError.
std::unique_ptr<TokenModel> make_token_model(const JsonNode& node);

// Reads an object of tokens and ids.
Vocabulary read_vocabulary(const JsonNode& node);

std::unique_ptr<TokenModel> make_bpe(const JsonNode& node);
// A byte-level BPE in which a token's id is its rank, as in tiktoken: neighbours that together are
// a token are merged, the token of the lowest id first. A word that is a token is never split.
// `special`: tokens that no merge makes.
std::unique_ptr<TokenModel> make_ranked_bpe(
    Vocabulary tokens, const std::vector<std::pair<std::string, uint32_t>>& special);
std::unique_ptr<TokenModel> make_word_piece(const JsonNode& node);
std::unique_ptr<TokenModel> make_unigram(const JsonNode& node);

}  // namespace lockstep::tokenizer
