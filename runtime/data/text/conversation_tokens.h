#pragma once
// The tokens of a conversation, and which of them are to be predicted.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/text/conversation.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep {

struct ConversationTokens {
  std::vector<uint32_t> ids;
  std::vector<uint8_t> counted;  // (ids) 1: part of an answer, or of all where prompts count, too
};

// How conversations become tokens. Constant; borrows all. Each thread has an encoder of its own.
class ConversationEncoder {
 public:
  ConversationEncoder(const Tokenizer& tokenizer, const ChatFiles& files, bool whole_loss)
      : tokenizer_(tokenizer), files_(files), whole_loss_(whole_loss) {}

  // With a template the ids of its text; a token of which a part is in an answer counts. White space
  // that stands behind the last special token of an answer does not, as nothing asks for it; but what
  // a template marks counts as it is.
  // Two texts are one, which ends by eos_token if there is one, with the special tokens that the tokenizer
  // itself puts around it. Tokens count from the first on that the prompt by itself has not. Throws
  // DataError.
  ConversationTokens encode(const Conversation& conversation, TokenEncoder& encoder) const;

 private:
  ConversationTokens encode_texts(const Conversation& conversation, TokenEncoder& encoder) const;
  // Tokens that begin before a byte of the text; `crossing`: else those that end before it or there.
  size_t tokens_before(const std::string& text,
                       const std::vector<uint32_t>& ids,
                       size_t byte,
                       bool crossing,
                       TokenEncoder& encoder) const;
  // An answer's end without the white space behind its last special token.
  size_t end_of_turn(const std::vector<uint32_t>& ids, size_t begin, size_t end) const;

  const Tokenizer& tokenizer_;
  const ChatFiles& files_;
  bool whole_loss_;
};

}  // namespace lockstep
