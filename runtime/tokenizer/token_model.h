#pragma once
// The model of a tokenizer: what a word becomes.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/growth_limit.h"
#include "runtime/tokenizer/json_place.h"
#include "runtime/tokenizer/vocabulary.h"

namespace lockstep {

// Memory that a thread keeps from word to word; what it holds is the model's affair.
struct ModelScratch {
  struct Symbol {
    uint32_t id;
    int32_t before, after;  // places of its neighbours; -1: none
    uint32_t rank;          // of the pair that it makes with the symbol after it
  };
  // The best way from the beginning of a word to one of its bytes.
  struct Path {
    double score;
    int32_t begin;  // of its last token; -1: there is no way
    uint32_t id;
  };
  GrowthLimit* limit = nullptr;  // of the text whose words come
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;
  std::vector<Path> paths;
};

// Constant once made: any number of threads may use it, each with its own scratch.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Appends the ids of a word that is not empty. Throws DataError on a word that has none.
  virtual void encode(std::string_view word,
                      ModelScratch& scratch,
                      std::vector<uint32_t>* ids) const = 0;

  // Whether words should come as bytes where a byte-level pre-tokenizer would write characters for
  // them.
  virtual bool wants_bytes() const { return false; }
  // Says that they do. Before the first word.
  virtual void take_bytes() {}

  const Vocabulary& vocabulary() const { return vocabulary_; }
  // For messages: "FILE: model (BPE)".
  const std::string& name() const { return name_; }

 protected:
  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

 private:
  friend std::unique_ptr<TokenModel> make_token_model(const JsonPlace& place);

  std::string name_;
  Vocabulary vocabulary_;
};

// Of the member "model". Throws DataError.
std::unique_ptr<TokenModel> make_token_model(const JsonPlace& place);

// The members of an object of tokens and ids.
Vocabulary read_vocabulary(const JsonPlace& place);

std::unique_ptr<TokenModel> make_bpe(const JsonPlace& place);
std::unique_ptr<TokenModel> make_word_piece(const JsonPlace& place);
std::unique_ptr<TokenModel> make_unigram(const JsonPlace& place);

}  // namespace lockstep
