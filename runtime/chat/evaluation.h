#pragma once
// Executes the statements of a chat template.

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/chat/syntax.h"

namespace lockstep::chat {

// The arguments of a call.
struct Arguments {
  std::vector<Value> values;
  Value::Members named;

  // The argument at an index or with a name; null if there is none.
  const Value* find(size_t index, std::string_view name) const;
  // Throws TemplateProblem, which names `what`, if there is no such argument.
  const Value& at(size_t index, std::string_view name, std::string_view what) const;
  // Throws TemplateProblem if there are more arguments, or others, than these names.
  void check(std::string_view what, std::initializer_list<std::string_view> names) const;
};

// The limits of one rendering, because templates are untrusted.
class Budget {
 public:
  static constexpr int64_t kMaxSteps = 5'000'000;      // expressions, statements, elements
  static constexpr size_t kMaxBytes = kMaxValueBytes;  // of all values that it makes
  static constexpr size_t kMaxOutput = kMaxTextBytes;

  // All throw TemplateProblem if the budget is used up.
  void step(int64_t steps = 1);
  // Counts the work of reading `bytes` bytes `times` times.
  void read(size_t bytes, size_t times = 1);
  // Counts a linear search for a name among members.
  void count_search(const Value::Members& members);
  void take(size_t bytes);
  // Create a text or list and count it.
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
  // `variables`: the template's variables by name.
  explicit Evaluation(Value::Members variables) { scopes_.push_back(std::move(variables)); }

  // Executes the body and writes its output. Throws TemplateProblem; line() is the line of the
  // problem.
  void run(const Body& body);

  std::string take_text() { return std::move(out_); }
  const std::vector<Span>& generated() const { return generated_; }
  int line() const { return line_; }

 private:
  enum class Flow { kOn, kBreak, kContinue };

  Flow run_body(const Body& body);
  Flow run_in_scope(const Body& body);  // with a scope of its own
  Flow run_statement(const Statement& statement);
  Flow run_for(const Statement& statement);
  void run_set(const Statement& statement);
  void assign(const std::vector<std::string>& targets, const Value& value);
  void write(const std::string& text);
  // Returns the output of a body, which is executed in its own scope.
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
  size_t base_ = 0;  // the innermost scopes from here on, and scope 0, are visible
  std::string out_;
  int captures_ = 0, depth_ = 0, line_ = 1;
  std::vector<Span> generated_;
  Budget budget_;
};

// The operations, each in its own file. All throw TemplateProblem, which names what is not
// supported.
Value apply_filter(Budget& budget,
                   const std::string& name,
                   const Value& object,
                   const Arguments& arguments);
bool apply_test(Budget& budget,
                const std::string& name,
                const Value& object,
                std::span<const Value> arguments);
Value call_method(Budget& budget,
                  const Value& object,
                  const std::string& name,
                  const Arguments& arguments);
Value attribute_of(Budget& budget, const Value& object, const std::string& name);
Value element_of(Budget& budget, const Value& object, const Value& index);
Value slice_of(
    Budget& budget, const Value& object, const Value& begin, const Value& end, const Value& step);
Value arithmetic(Budget& budget, const std::string& sign, const Value& a, const Value& b);
bool contains(Budget& budget, const Value& all, const Value& one);
// Like Value::find(), but counts the search.
const Value* member_of(Budget& budget, const Value& object, std::string_view name);
// The order of two numbers, texts or lists: below 0, 0, or above 0.
int order(const Value& a, const Value& b);
// The elements that a loop over a value visits. Marks a generator as consumed: a second loop over
// it is rejected, because in Jinja it would see only what the first has left.
std::shared_ptr<const Value::List> elements_of(Budget& budget, const Value& value);
// The characters of a text, each as a text. Costs one step per character.
std::vector<std::string> characters(Budget& budget, const std::string& text);
int64_t length_of(const Value& value);

}  // namespace lockstep::chat
