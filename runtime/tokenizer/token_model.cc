#include "runtime/tokenizer/token_model.h"

namespace lockstep {

std::unique_ptr<TokenModel> make_token_model(const JsonPlace& place) {
  // Files of the first years do not name the kind.
  const std::string type = place.text_or("type",
                                         place.value().contains("merges")   ? "BPE"
                                         : place.value().contains("unk_id") ? "Unigram"
                                                                            : "WordPiece");
  if (type == "BPE") return make_bpe(place);
  if (type == "WordPiece") return make_word_piece(place);
  if (type == "Unigram") return make_unigram(place);
  place.at("type").refuse("BPE, Unigram, WordPiece");
}

Vocabulary read_vocabulary(const JsonPlace& place) {
  if (place.value().kind() != Json::Kind::kObject) place.refuse("an object of tokens and ids");
  Vocabulary vocabulary;
  const Json* value = place.value().begin();
  for (const std::string& token : place.value().names()) {
    // A place is made only where it is needed: there are many tokens.
    const bool is_id =
        value->kind() == Json::Kind::kUnsigned && value->get<uint64_t>() <= INT32_MAX;
    vocabulary.add(token,
                   is_id ? static_cast<uint32_t>(value->get<uint64_t>()) : place.at(token).id());
    ++value;
  }
  return vocabulary;
}

}  // namespace lockstep
