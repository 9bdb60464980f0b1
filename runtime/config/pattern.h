#pragma once
// Regular expressions in the config.

#include <memory>
#include <string>

namespace lockstep::config {

// The ECMAScript expression of the field at `path`, which is searched for in names. A search takes
// polynomial time, whatever the expression.
class Pattern {
 public:
  // Throws ConfigError if `text` is not a valid expression.
  Pattern(const std::string& path, const std::string& text);
  ~Pattern();
  Pattern(Pattern&&) noexcept;

  bool found_in(const std::string& name) const;

 private:
  struct Expression;
  std::unique_ptr<const Expression> expression_;
};

}  // namespace lockstep::config
