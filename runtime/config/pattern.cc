#include "runtime/config/pattern.h"

#include <regex>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"

namespace lockstep {

struct Pattern::Expression {
  std::regex regex;
};

namespace {

// In words of our own: those of the library speak of its source.
const char* reason_of(std::regex_constants::error_type code) {
  using namespace std::regex_constants;
  if (code == error_brack) return "a bracket [ or ] is alone";
  if (code == error_paren) return "a parenthesis is alone, or begins what is not known";
  if (code == error_brace) return "a brace { or } is alone";
  if (code == error_badbrace) return "the numbers in braces {} are none";
  if (code == error_range) return "a range of characters ends before it begins";
  if (code == error_ctype) return "a class of characters is not known";
  if (code == error_collate) return "a collating element is not known";
  if (code == error_escape) return "a backslash is before what it does not escape";
  if (code == error_backref) return "references back are not supported";
  if (code == error_badrepeat) return "*, +, ? or { has nothing to repeat";
  if (code == error_space || code == error_stack) return "its repetitions make it too large";
  return "it is too complex";
}

}  // namespace

Pattern::Pattern(const std::string& path, const std::string& text) {
  constexpr size_t kMaxCharacters = 1000;  // deep nesting would take the stack
  if (text.size() > kMaxCharacters)
    throw ConfigError(
        "{}: has {} characters; allowed: up to {}", path, text.size(), kMaxCharacters);
  try {
    // libstdc++'s way to search in polynomial time; it has no references back.
    expression_.reset(new Expression{
        std::regex(text, std::regex::ECMAScript | std::regex_constants::__polynomial)});
  } catch (const std::regex_error& error) {
    refuse_value(
        path,
        in_quotes(text),
        fmt::format("a regular expression as ECMAScript has them ({})", reason_of(error.code())));
  }
}

Pattern::~Pattern() = default;

Pattern::Pattern(Pattern&&) noexcept = default;

bool Pattern::found_in(const std::string& name) const {
  return std::regex_search(name, expression_->regex);
}

}  // namespace lockstep
