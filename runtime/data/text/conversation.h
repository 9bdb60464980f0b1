#pragma once
// Conversations as lines of JSON, and where in their text the answers stand.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/chat/chat_files.h"
#include "runtime/config/run_config.h"

namespace lockstep {

// A line of data.conversations.
struct Conversation {
  Json messages;               // an array; null if it is two texts
  size_t first_answer = 0;     // messages of the assistant from here on are answers
  Json tools;                  // the member of that name, for the template; null: none
  std::string prompt, answer;  // without messages
};

// Part of a text, in bytes.
struct TextSpan {
  size_t begin = 0, end = 0;
  bool operator==(const TextSpan&) const = default;
};

// A conversation as one text, and its answers in it, ascending; they do not overlap.
struct AnsweredText {
  std::string text;
  std::vector<TextSpan> answers;
};

// What is wrong with a line, or nothing: then *conversation is it.
std::string read_conversation(std::string_view line,
                              const ConversationsConfig& config,
                              Conversation* conversation);

// The text that the template makes of the messages. What it marks as generated are the answers;
// where it marks nothing, an answer is what the text up to it and with it has more than the one up
// to it that prompts for it. Throws DataError, which names the template, where it fails, or where
// texts of the first messages are not how the whole text begins.
AnsweredText render_answers(const ChatFiles& files, const Conversation& conversation);

}  // namespace lockstep
