#include "runtime/tokenizer/token_model.h"

#include <fmt/core.h>

namespace lockstep {

std::unique_ptr<TokenModel> make_token_model(const JsonPlace& place) {
  // Files of the first years do not name the kind.
  const std::string type = place.text_or("type",
                                         place.value().contains("merges")   ? "BPE"
                                         : place.value().contains("unk_id") ? "Unigram"
                                                                            : "WordPiece");
  const auto make = type == "BPE"         ? make_bpe
                    : type == "WordPiece" ? make_word_piece
                    : type == "Unigram"   ? make_unigram
                                          : nullptr;
  if (make == nullptr) place.at("type").refuse("BPE, Unigram, WordPiece");
  std::unique_ptr<TokenModel> model = make(place);
  model->name_ = fmt::format("{} ({})", place.name(), type);
  return model;
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
