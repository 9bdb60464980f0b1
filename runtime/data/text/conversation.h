#pragma once
// Conversations as lines of JSON, and the positions of answers in their text.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/chat/chat_files.h"
#include "runtime/config/run_config.h"

namespace lockstep::data {

// A line of data.conversations.
struct Conversation {
  Json messages;               // an array; null if there are only a prompt and an answer
  size_t first_answer = 0;     // the assistant's messages from this index on are answers
  Json tools;                  // the member `tools`, for the template; null: none
  std::string prompt, answer;  // set only if there are no messages
  std::string unread;          // a member of the line that means a weight and is not read, or ""
};

// A range of a text, in bytes.
struct TextSpan {
  size_t begin = 0, end = 0;
  bool operator==(const TextSpan&) const = default;
};

// A conversation as one text, and the ranges of its answers, ascending and without overlap.
struct AnsweredText {
  std::string text;
  std::vector<TextSpan> answers;   // those that count in the loss
  std::vector<TextSpan> left_out;  // those of weight 0
};

// Parses a line. Returns what is wrong with it, or "" and sets *conversation.
std::string read_conversation(std::string_view line,
                              const ConversationsConfig& config,
                              Conversation* conversation);

// Renders the messages with the chat template and finds the answers. If the template marks
// generated text ({% generation %}), those parts are the answers. Otherwise the messages before
// each answer are rendered with a prompt for it, and then together with it: the difference is the
// answer. Throws DataError, which names the template, if it fails, or if such a partial text is not
// a prefix of the whole text.
AnsweredText render_answers(const chat::ChatFiles& files, const Conversation& conversation);

}  // namespace lockstep::data
