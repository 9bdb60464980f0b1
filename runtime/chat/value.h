#pragma once
// Values of a chat template, with Python's semantics: none, booleans, 64-bit integers, doubles,
// texts (valid UTF-8, counted in code points), lists, tuples, mappings with text keys, iterables,
// namespaces, and undefined, which is a value too. Copies share their contents, which are immutable
// except for namespaces and the state of generators.

#include <fmt/core.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/json.h"

namespace lockstep::chat {

struct MacroNode;

// The max size of a text that a template makes, and of a value with everything in it.
constexpr size_t kMaxTextBytes = size_t{64} << 20;
constexpr size_t kMaxValueBytes = size_t{256} << 20;

// An error of a template. ChatTemplate adds the line and converts it to a DataError.
struct TemplateProblem {
  template <typename... Args>
  explicit TemplateProblem(fmt::format_string<Args...> format, Args&&... args)
      : text(fmt::format(format, std::forward<Args>(args)...)) {}

  std::string text;
  bool raised = false;  // by raise_exception: the template rejects the messages
};

class Value {
 public:
  enum class Kind : uint8_t {
    kUndefined,
    kNone,
    kBoolean,
    kInteger,
    kDouble,
    kText,
    kList,  // or tuple
    kMapping,
    kIterable,
    kNamespace,
    kLoop,
    kMacro,
  };
  using List = std::vector<Value>;
  using Members = std::vector<std::pair<std::string, Value>>;
  struct Namespace {
    Members members;
  };
  // Something other than a list that a loop can visit: a range, a view of a mapping's items, keys
  // or values, or the result of a filter such as map or select, which is a generator in Jinja and
  // can be visited only once.
  struct Iterable {
    enum class Kind : uint8_t { kRange, kView, kGenerator };
    Kind kind;
    std::shared_ptr<const List> items;
    mutable bool consumed = false;  // for generators
  };
  // The variable `loop` of a loop.
  struct Loop {
    std::shared_ptr<const List> items;
    size_t index = 0;
  };

  Value() = default;  // none
  static Value undefined(std::string name);
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value number(double value);
  static Value text(std::string value);
  // Throws TemplateProblem if values are nested too deeply, or are too large when shared parts are
  // counted at each occurrence, because printing and comparing visits them each time.
  static Value list(List values, bool tuple = false);
  static Value mapping(Members members);
  static Value iterable(Iterable::Kind kind, List values);
  static Value new_namespace(Members members);
  static Value loop(std::shared_ptr<const List> items, size_t index);
  static Value macro(const MacroNode* node);
  static Value from_json(const Json& json);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return is(Kind::kUndefined); }
  bool is_text() const { return is(Kind::kText); }
  bool is_list() const { return is(Kind::kList); }
  bool is_mapping() const { return is(Kind::kMapping); }
  bool is_tuple() const { return tuple_; }
  bool is_iterable(Iterable::Kind kind) const {
    return is(Kind::kIterable) && as_iterable().kind == kind;
  }
  // Booleans are integers, too.
  bool is_integer() const { return is(Kind::kInteger) || is(Kind::kBoolean); }
  bool is_number() const { return is_integer() || is(Kind::kDouble); }

  // The contents; the value must be of that kind.
  int64_t as_integer() const { return integer_; }
  double as_double() const { return is(Kind::kDouble) ? number_ : static_cast<double>(integer_); }
  const std::string& as_text() const { return *static_cast<const std::string*>(held_.get()); }
  const List& as_list() const { return *static_cast<const List*>(held_.get()); }
  std::shared_ptr<const List> shared_list() const;
  const Iterable& as_iterable() const { return *static_cast<const Iterable*>(held_.get()); }
  const Members& as_mapping() const { return *static_cast<const Members*>(held_.get()); }
  Namespace& as_namespace() const {
    return *const_cast<Namespace*>(static_cast<const Namespace*>(held_.get()));
  }
  const Loop& as_loop() const { return *static_cast<const Loop*>(held_.get()); }
  const MacroNode* as_macro() const { return macro_; }
  const std::string& undefined_name() const { return as_text(); }

  // The number of bytes visited when the whole value is read.
  size_t weight() const { return weight_; }

  bool truth() const;
  const char* kind_name() const;  // Python's name of the type
  // As printed in a text, and as printed inside a list, with quotation marks.
  std::string shown() const;
  std::string repr() const;
  // The member of that name; null if there is none.
  const Value* find(std::string_view name) const;

  // Python's ==. Throws TemplateProblem if both are ranges or both are views.
  friend bool operator==(const Value& a, const Value& b);

 private:
  explicit Value(Kind kind, std::shared_ptr<const void> held = nullptr)
      : kind_(kind), held_(std::move(held)) {}
  void append_repr(std::string* out) const;

  Kind kind_ = Kind::kNone;
  bool tuple_ = false;
  uint16_t depth_ = 0;   // nesting depth
  uint32_t weight_ = 1;  // at most kMaxValueBytes, except for texts
  int64_t integer_ = 0;
  double number_ = 0;
  const MacroNode* macro_ = nullptr;
  std::shared_ptr<const void> held_;
};

// The member of that name; null if there is none.
const Value* find_member(const Value::Members& members, std::string_view name);

// The same; if there is none, it is added, as none.
Value& member_named(Value::Members& members, const std::string& name);

// Formats a double as Python does: the shortest text that reads back as the same number.
std::string python_number(double value);

// Python's json.dumps with ensure_ascii=`ascii`. indent below 0: on one line. Throws
// TemplateProblem if the text is longer than kMaxTextBytes.
std::string python_json(const Value& value, int indent, bool sort_keys, bool ascii);

}  // namespace lockstep::chat
