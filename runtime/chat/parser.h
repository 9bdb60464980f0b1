#pragma once
// Parses the tokens of a chat template into statements.

#include "runtime/chat/lexer.h"
#include "runtime/chat/syntax.h"

namespace lockstep::chat {

// Throws SyntaxProblem, which names what is not supported.
Body parse_template(std::string_view source);

// Whether a body, or a nested one, marks what the assistant generates.
bool has_generation(const Body& body);

}  // namespace lockstep::chat
