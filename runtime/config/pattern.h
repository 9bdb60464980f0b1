#pragma once
// Regular expressions in the config.

#include <memory>
#include <string>

namespace lockstep {

// An ECMAScript expression of the field at `path`, which is searched for in names. Searching takes
// no more than polynomial time, whatever the expression.
class Pattern {
 public:
  // Throws ConfigError where `text` is none.
  Pattern(const std::string& path, const std::string& text);
  ~Pattern();
  Pattern(Pattern&&) noexcept;

  bool found_in(const std::string& name) const;

 private:
  struct Expression;
  std::unique_ptr<const Expression> expression_;
};

}  // namespace lockstep
