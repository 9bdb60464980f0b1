#include "runtime/config/pattern.h"

#include <regex>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"

namespace lockstep {

struct Pattern::Expression {
  std::regex regex;
};

Pattern::Pattern(const std::string& path, const std::string& text) {
  constexpr size_t kMostCharacters = 1000;  // deep nesting would take the stack
  if (text.size() > kMostCharacters)
    throw ConfigError(
        "{}: has {} characters; allowed: up to {}", path, text.size(), kMostCharacters);
  try {
    // libstdc++'s way to search in polynomial time; it has no references back.
    expression_.reset(new Expression{
        std::regex(text, std::regex::ECMAScript | std::regex_constants::__polynomial)});
  } catch (const std::regex_error& error) {
    refuse_value(path,
                 in_quotes(text),
                 fmt::format("a regular expression as ECMAScript has them ({})", error.what()));
  }
}

Pattern::~Pattern() = default;

Pattern::Pattern(Pattern&&) noexcept = default;

bool Pattern::found_in(const std::string& name) const {
  return std::regex_search(name, expression_->regex);
}

}  // namespace lockstep
