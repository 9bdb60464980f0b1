#pragma once
// The tokens of a conversation, and which of them count in the loss.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/text/conversation.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep::data {

struct ConversationTokens {
  std::vector<uint32_t> ids;
  std::vector<uint8_t> counted;  // (ids) 1: counts in the loss
};

// Encodes conversations as tokens. With `whole_loss` all tokens count, otherwise only those of
// answers. Answers of weight 0 never count. Immutable and thread-safe if each thread passes its own
// TokenEncoder. Borrows its arguments.
class ConversationEncoder {
 public:
  ConversationEncoder(const tokenizer::Tokenizer& tokenizer,
                      const chat::ChatFiles& files,
                      bool whole_loss)
      : tokenizer_(tokenizer), files_(files), whole_loss_(whole_loss) {}

  // Messages are rendered with the chat template. A token counts if any part of it is in an answer.
  // White space after the last special token of an answer does not count, as the model need not
  // generate it, unless the template marks it.
  // A prompt and an answer are concatenated, with eos_token at the end if there is one, and encoded
  // with the tokenizer's special tokens. Tokens count from the first one that differs from the
  // tokens of the prompt alone. Throws DataError.
  ConversationTokens encode(const Conversation& conversation,
                            tokenizer::TokenEncoder& encoder) const;

 private:
  ConversationTokens encode_texts(const Conversation& conversation,
                                  tokenizer::TokenEncoder& encoder) const;
  // The number of tokens that end at or before `byte` of the text; with `crossing`, the number that
  // begin before it.
  size_t tokens_before(const std::string& text,
                       const std::vector<uint32_t>& ids,
                       size_t byte,
                       bool crossing,
                       tokenizer::TokenEncoder& encoder) const;
  // The end of an answer's tokens [begin, end) without the white space after its last special
  // token.
  size_t end_of_turn(const std::vector<uint32_t>& ids, size_t begin, size_t end) const;

  const tokenizer::Tokenizer& tokenizer_;
  const chat::ChatFiles& files_;
  bool whole_loss_;
};

}  // namespace lockstep::data
