#pragma once
// Conversations as lines of JSON: their messages, as people write them, and the positions of
// answers in their text.

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

bool is_assistant(const Json& message);

// Whether an answer counts in the loss: it does unless its `weight` is 0, as in OpenAI's files.
bool counts_in_loss(const Json& message);

// Checks a list of messages, and joins contents that are lists of text parts to strings, as chat
// templates expect them. `field` names the list in the message. Returns what is wrong, or "".
std::string check_messages(const std::string& field, Json* messages);

// The roles of messages, for messages: "'user', 'system'".
std::string roles_in(const Json& messages);

// The name of a member of a line that other trainers read as a weight in the loss, and that does
// not say that everything counts; empty if there is none. It is not read.
std::string weight_of_line(const Json& line);

// The form of a line without a conversation: a common one with the command that converts it, such
// as "; it is in Alpaca's form; ...", otherwise the names of its members.
std::string describe_other_form(const Json& line);

}  // namespace lockstep::data
