#pragma once
// A chat template cut into texts and the words of its tags, as Jinja cuts it with trim_blocks and
// lstrip_blocks: the first newline after a block or comment goes, and so do blanks between the
// beginning of a line and such a tag; a '-' in a tag takes all white space on its side, a '+' keeps
// what else would go. The last newline of the template goes, too.

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
    kString,    // without its quotation marks, escapes taken
    kOperator,  // "==", "(", ...
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 1;
};

// A template that is not understood: what and where.
struct SyntaxProblem {
  std::string text;
  int line;
};

// `source` is valid UTF-8. Throws SyntaxProblem.
std::vector<Token> cut_template(std::string_view source);

// White space of Python's str: how many bytes of it `text` begins and ends with.
size_t leading_space(std::string_view text);
size_t trailing_space(std::string_view text);

}  // namespace lockstep::chat
