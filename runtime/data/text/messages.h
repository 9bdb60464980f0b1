#pragma once
// Messages of a conversation as people write them.

#include <string>

#include "runtime/base/json.h"

namespace lockstep::data {

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
