#include "runtime/config/pattern.h"

#include <regex>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"

namespace lockstep::config {

struct Pattern::Expression {
  std::regex regex;
};

namespace {

// Our own messages: the library's refer to its source code.
const char* reason_of(std::regex_constants::error_type code) {
  using namespace std::regex_constants;
  if (code == error_brack) return "an unmatched bracket [ or ]";
  if (code == error_paren) return "an unmatched parenthesis, or an unsupported group";
  if (code == error_brace) return "an unmatched brace { or }";
  if (code == error_badbrace) return "invalid numbers in braces {}";
  if (code == error_range) return "a range of characters ends before it begins";
  if (code == error_ctype) return "an unknown character class";
  if (code == error_collate) return "an unknown collating element";
  if (code == error_escape) return "an invalid escape";
  if (code == error_backref) return "back-references are not supported";
  if (code == error_badrepeat) return "*, +, ? or { has nothing to repeat";
  if (code == error_space || code == error_stack) return "its repetitions make it too large";
  return "it is too complex";
}

}  // namespace

Pattern::Pattern(const std::string& path, const std::string& text) {
  constexpr size_t kMaxCharacters = 1000;  // deep nesting would overflow the stack
  if (text.size() > kMaxCharacters)
    throw ConfigError(
        "{}: has {} characters; allowed: up to {}", path, text.size(), kMaxCharacters);
  try {
    // libstdc++'s mode for searches in polynomial time. It has no back-references.
    expression_.reset(new Expression{
        std::regex(text, std::regex::ECMAScript | std::regex_constants::__polynomial)});
  } catch (const std::regex_error& error) {
    refuse_value(path,
                 in_quotes(text),
                 "a regular expression in ECMAScript syntax ({})",
                 reason_of(error.code()));
  }
}

Pattern::~Pattern() = default;

Pattern::Pattern(Pattern&&) noexcept = default;

bool Pattern::found_in(const std::string& name) const {
  return std::regex_search(name, expression_->regex);
}

}  // namespace lockstep::config
