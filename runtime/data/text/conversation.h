#pragma once
// Conversations as records of JSON: their messages, as people write them, and the positions of
// answers in their text.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/chat/chat_files.h"
#include "runtime/config/run_config.h"

namespace lockstep::data {

// How a record holds its conversation.
enum class ConversationForm : uint8_t {
  kMessages,  // a list of messages with role and content
  kShareGpt,  // a list of messages with from and value
  kTexts,     // a prompt and an answer
  kAlpaca,    // instruction, input and output
};
const char* words_for(ConversationForm form);  // "in Alpaca's form (...)", "as messages ..."

// A record of data.conversations.
struct Conversation {
  ConversationForm form = ConversationForm::kMessages;
  Json messages;            // an array; null if there are only a prompt and an answer
  size_t first_answer = 0;  // the assistant's messages from this index on are answers
  Json tools;               // the member `tools`, for the template; null: none
  std::string prompt,
      answer;          // set if there are no messages, or if the texts do without a template
  std::string unread;  // a member of the line that means a weight and is not read, or ""

  // Whether prompt and answer are concatenated, because there are no messages or no chat template.
  bool uses_texts(bool has_template) const {
    return messages.is_null() || (!has_template && !answer.empty());
  }
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

// Parses a record. Roles and the names of members become those of chat templates: "user" and
// "content" for ShareGPT's "human" and "value". In Alpaca's form the user's message is the
// instruction, a blank line and the input; without a chat template the prompt is Alpaca's own.
// Returns what is wrong with the record, or "" and sets *conversation.
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

// Renames roles and members of messages to those of chat templates, as the config says; messages of
// ShareGPT's form are known without it. Leaves what is no list to check_messages(). Sets
// *is_share_gpt if one of them has that form. Returns what is wrong, or "".
std::string translate_messages(const std::string& field,
                               const ConversationsConfig& config,
                               Json* messages,
                               bool* is_share_gpt);

// Appends a member to the messages: a list of messages, or a string, which is a message of `role`.
// Returns what is wrong with it, or "".
std::string take_messages(const Json& member,
                          const std::string& field,
                          const char* role,
                          const ConversationsConfig& config,
                          Json* all);

// Checks a list of messages, and joins contents that are lists of text parts to strings, as chat
// templates expect them. `field` names the list in the message. Returns what is wrong, or "".
std::string check_messages(const std::string& field, Json* messages);

// The roles of messages, for messages: "'user', 'system'".
std::string roles_in(const Json& messages);

// The name of a member of a line that other trainers read as a weight in the loss, and that does
// not say that everything counts; empty if there is none. It is not read.
std::string weight_of_line(const Json& line);

// Why a record holds no conversation: the fields that are probably meant, or else its members.
std::string describe_other_form(const Json& line);

}  // namespace lockstep::data
