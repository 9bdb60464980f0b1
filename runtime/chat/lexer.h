#pragma once
// Splits a chat template into texts and the tokens of its tags, as Jinja does with trim_blocks and
// lstrip_blocks. The first newline after a block or comment is removed, and so are blanks between
// the beginning of a line and such a tag. A '-' in a tag removes all white space on its side; a '+'
// keeps what would be removed. The last newline of the template is removed too.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::chat {

struct Token {
  enum class Kind : uint8_t {
    kText,  // outside of tags
    kBlockBegin,
    kBlockEnd,
    kOutputBegin,
    kOutputEnd,
    kName,
    kInteger,
    kNumber,
    kString,    // without quotation marks, escapes resolved
    kOperator,  // "==", "(", ...
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 1;
};

// A syntax error and its line.
struct SyntaxProblem {
  std::string text;
  int line;
};

// `source` must be valid UTF-8. Throws SyntaxProblem.
std::vector<Token> tokenize_template(std::string_view source);

// The number of bytes at the beginning and end of `text` that are white space for Python's str.
size_t leading_space(std::string_view text);
size_t trailing_space(std::string_view text);

}  // namespace lockstep::chat
