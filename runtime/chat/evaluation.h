#pragma once
// Runs the statements of a chat template.

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/chat/syntax.h"

namespace lockstep::chat {

// What a call is given.
struct Arguments {
  std::vector<Value> values;
  Value::Members named;

  // The one at a place or of a name, or null.
  const Value* find(size_t place, std::string_view name) const;
  // Throws TemplateProblem, which names `what`, where there is none.
  const Value& at(size_t place, std::string_view name, std::string_view what) const;
  // Throws TemplateProblem where more are given than these names.
  void check(std::string_view what, std::initializer_list<std::string_view> names) const;
};

// What one rendering may take: templates come from anywhere.
class Budget {
 public:
  static constexpr int64_t kMostSteps = 5'000'000;       // expressions, statements, elements
  static constexpr size_t kMostBytes = kMostValueBytes;  // of all values that it makes
  static constexpr size_t kMostOutput = kMostTextBytes;

  // Throw TemplateProblem where it is used up.
  void step(int64_t steps = 1);
  // Of what goes through so many bytes `times` over.
  void read(size_t bytes, size_t times = 1);
  // For a search of a name among members, one after the other.
  void look_through(const Value::Members& members);
  void take(size_t bytes);
  // A new text or list, which is counted.
  Value text(std::string text);
  Value list(Value::List values, bool tuple = false);
  Value iterable(Value::Iterable::Kind kind, Value::List values);

 private:
  int64_t steps_ = 0;
  size_t bytes_ = 0;
};

// The part of the text that a generation block wrote, in bytes.
struct Span {
  size_t begin = 0, end = 0;
  bool operator==(const Span&) const = default;
};

class Evaluation {
 public:
  // `variables`: what the template knows by name.
  explicit Evaluation(Value::Members variables) { scopes_.push_back(std::move(variables)); }

  // Writes what the body says. Throws TemplateProblem; line() is where.
  void run(const Body& body);

  std::string take_text() { return std::move(out_); }
  const std::vector<Span>& generated() const { return generated_; }
  int line() const { return line_; }

 private:
  enum class Flow { kOn, kBreak, kContinue };

  Flow run_body(const Body& body);
  Flow run_statement(const Statement& statement);
  Flow run_for(const Statement& statement);
  void run_set(const Statement& statement);
  void assign(const std::vector<std::string>& targets, const Value& value);
  void write(const std::string& text);
  // What a body writes, in a scope of its own.
  std::string captured(const Body& body);

  Value evaluate(const Expression& expression);
  Value evaluate_kind(const Expression& expression);
  Value name(const Expression& expression);
  Value call(const Expression& expression);
  Value call_macro(const MacroNode& macro, Arguments arguments);
  Value call_function(const std::string& name, const Arguments& arguments);
  Value compare(const Expression& expression);
  Arguments arguments_of(const Expression& expression, size_t first);
  const Value* find_variable(std::string_view name);
  Value& variable(const std::string& name);

  std::vector<Value::Members> scopes_;
  size_t base_ = 0;  // the first scope that is seen beside the outermost one
  std::string out_;
  int captures_ = 0, depth_ = 0, line_ = 1;
  std::vector<Span> generated_;
  Budget budget_;
};

// The pieces, each in a file of its own. All throw TemplateProblem, which names what is not known.
Value apply_filter(Budget& budget,
                   const std::string& name,
                   const Value& of,
                   const Arguments& arguments);
bool apply_test(Budget& budget,
                const std::string& name,
                const Value& of,
                std::span<const Value> arguments);
Value call_method(Budget& budget,
                  const Value& of,
                  const std::string& name,
                  const Arguments& arguments);
Value attribute_of(Budget& budget, const Value& of, const std::string& name);
Value element_of(Budget& budget, const Value& of, const Value& index);
Value slice_of(
    Budget& budget, const Value& of, const Value& begin, const Value& end, const Value& step);
Value arithmetic(Budget& budget, const std::string& sign, const Value& a, const Value& b);
bool contains(Budget& budget, const Value& all, const Value& one);
// As Value::find, and counted.
const Value* member_of(Budget& budget, const Value& of, std::string_view name);
// Below 0, 0 or above, of numbers, texts and lists.
int order(const Value& a, const Value& b);
// What a loop over a value goes through. Takes it, where it is a generator: its second loop is
// refused, which in Jinja finds what the first has left.
std::shared_ptr<const Value::List> elements_of(Budget& budget, const Value& value);
// Characters of a text, each a text; their number is a number of steps.
std::vector<std::string> characters(Budget& budget, const std::string& text);
int64_t length_of(const Value& value);

}  // namespace lockstep::chat
