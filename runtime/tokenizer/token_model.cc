#include "runtime/tokenizer/token_model.h"

#include <fmt/core.h>

namespace lockstep::tokenizer {

std::unique_ptr<TokenModel> make_token_model(const JsonNode& node) {
  // Early files do not name the type.
  const std::string type = node.text_or("type",
                                        node.value().contains("merges")   ? "BPE"
                                        : node.value().contains("unk_id") ? "Unigram"
                                                                          : "WordPiece");
  const auto make = type == "BPE"         ? make_bpe
                    : type == "WordPiece" ? make_word_piece
                    : type == "Unigram"   ? make_unigram
                                          : nullptr;
  if (make == nullptr) node.at("type").refuse("BPE, Unigram, WordPiece");
  std::unique_ptr<TokenModel> model = make(node);
  model->name_ = fmt::format("{} ({})", node.name(), type);
  return model;
}

Vocabulary read_vocabulary(const JsonNode& node) {
  if (node.value().kind() != Json::Kind::kObject) node.refuse("an object of tokens and ids");
  Vocabulary vocabulary;
  const Json* value = node.value().begin();
  for (const std::string& token : node.value().names()) {
    // A JsonNode for each token would be slow, so nodes are made only if needed.
    const bool is_id =
        value->kind() == Json::Kind::kUnsigned && value->get<uint64_t>() <= INT32_MAX;
    vocabulary.add(token,
                   is_id ? static_cast<uint32_t>(value->get<uint64_t>()) : node.at(token).id());
    ++value;
  }
  return vocabulary;
}

}  // namespace lockstep::tokenizer
