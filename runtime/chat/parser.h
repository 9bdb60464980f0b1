#pragma once
// From the words of a chat template to its statements.

#include "runtime/chat/lexer.h"
#include "runtime/chat/syntax.h"

namespace lockstep::chat {

// Throws SyntaxProblem, which names what is not known.
Body parse_template(std::string_view source);

// Whether a body, or one within it, says what the assistant generates.
bool has_generation(const Body& body);

}  // namespace lockstep::chat
