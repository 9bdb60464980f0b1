#include "runtime/config/pattern.h"

#include <regex>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"

namespace lockstep {

struct Pattern::Expression {
  std::regex regex;
};

Pattern::Pattern(const std::string& path, const std::string& text) {
  try {
    expression_.reset(new Expression{std::regex(text)});
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
