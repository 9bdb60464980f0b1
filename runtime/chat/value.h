#pragma once
// Values of a chat template, as Python has them: none, booleans, 64-bit integers, doubles, texts
// (valid UTF-8, counted in code points), lists, tuples, mappings of texts, iterables, namespaces; and
// what is not defined, which is a value of its own. Copies share what they hold, which does not
// change, but for namespaces and what of a generator has been taken.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/json.h"

namespace lockstep::chat {

struct MacroNode;

// Of a text that a template makes, and of a value with all that lies in it.
constexpr size_t kMostTextBytes = size_t{64} << 20;
constexpr size_t kMostValueBytes = size_t{256} << 20;

// What a template cannot do; the line is added where it is known. Made into a DataError.
struct TemplateProblem {
  std::string text;
  bool raised = false;  // by raise_exception: the template works, and does not want these messages
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
  // What a loop can go through, and that is no list: a range, the items, keys or values of a mapping,
  // and what filters such as map and select give, which Jinja makes as it goes, once.
  struct Iterable {
    enum class Kind : uint8_t { kRange, kView, kGenerator };
    Kind kind;
    std::shared_ptr<const List> items;
    mutable bool taken = false;  // of a generator
  };
  // What `loop` is in a loop.
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
  // Throws TemplateProblem where values lie too deep within each other, or are too large when what
  // they share is counted each time: so it is written and compared.
  static Value list(List values, bool tuple = false);
  static Value mapping(Members members);
  static Value iterable(Iterable::Kind kind, List values);
  static Value new_namespace(Members members);
  static Value loop(std::shared_ptr<const List> items, size_t index);
  static Value macro(const MacroNode* node);
  static Value of(const Json& json);

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

  // Of a value of that kind.
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

  // Bytes that are gone through where all of it is read.
  size_t weight() const { return weight_; }

  bool truth() const;
  const char* kind_name() const;  // as Python calls it
  // As it stands in a text, and within a list: there texts have quotation marks.
  std::string shown() const;
  std::string repr() const;
  // The member of that name, or null.
  const Value* find(std::string_view name) const;

  // As Python's ==. Throws TemplateProblem where both are ranges or views.
  friend bool operator==(const Value& a, const Value& b);

 private:
  void append_repr(std::string* out) const;

  Kind kind_ = Kind::kNone;
  bool tuple_ = false;
  uint16_t depth_ = 0;   // of values within each other
  uint32_t weight_ = 1;  // up to kMostValueBytes, but for texts
  int64_t integer_ = 0;
  double number_ = 0;
  const MacroNode* macro_ = nullptr;
  std::shared_ptr<const void> held_;
};

// As Python writes a double: the shortest text that reads as the same.
std::string python_number(double value);

// As json.dumps of Python with ensure_ascii=False. indent below 0: on one line. Throws
// TemplateProblem where it is longer than kMostTextBytes.
std::string python_json(const Value& value, int indent, bool sort_keys, bool ascii);

}  // namespace lockstep::chat
