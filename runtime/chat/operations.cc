// Elements, attributes and operators of values.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "runtime/base/int128.h"
#include "runtime/base/text.h"
#include "runtime/chat/evaluation.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::chat {
namespace {

[[noreturn]] void refuse_kind(const Value& value, const std::string& what) {
  if (value.is_undefined())
    throw TemplateProblem("{}: '{}' is undefined", what, value.undefined_name());
  throw TemplateProblem("{}: a value of type {} is not allowed", what, value.kind_name());
}

// Resolves an index of Python, which counts from the end if it is negative. No value if it is out
// of range.
std::optional<size_t> index_of(int64_t index, size_t size) {
  const auto count = static_cast<int64_t>(size);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return std::nullopt;
  return static_cast<size_t>(index);
}

Value loop_attribute(const Value::Loop& loop, const std::string& name) {
  const auto index = static_cast<int64_t>(loop.index),
             length = static_cast<int64_t>(loop.items->size());
  const auto item = [&](int64_t i, const char* what) {
    return i < 0 || i >= length ? Value::undefined(what) : (*loop.items)[static_cast<size_t>(i)];
  };
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(length - index);
  if (name == "revindex0") return Value::integer(length - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index == length - 1);
  if (name == "length") return Value::integer(length);
  if (name == "previtem") return item(index - 1, "loop.previtem");
  if (name == "nextitem") return item(index + 1, "loop.nextitem");
  throw TemplateProblem("loop.{} is not supported", name);
}

const std::vector<std::string> kMappingMethods =
    words_of("items keys values get pop copy update clear setdefault popitem fromkeys");

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a % b < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value integer_arithmetic(const std::string& sign, int64_t a, int64_t b) {
  int64_t result = 0;
  bool over = false;
  if (sign == "+") {
    over = __builtin_add_overflow(a, b, &result);
  } else if (sign == "-") {
    over = __builtin_sub_overflow(a, b, &result);
  } else if (sign == "*") {
    over = __builtin_mul_overflow(a, b, &result);
  } else {
    if (b == 0) throw TemplateProblem("a division by 0");
    if (sign == "/") return Value::number(static_cast<double>(a) / static_cast<double>(b));
    if (a == INT64_MIN && b == -1) {
      over = sign == "//";
    } else {
      result = sign == "//" ? floor_divide(a, b) : a - floor_divide(a, b) * b;
    }
  }
  if (over) throw TemplateProblem("an integer of more than 64 bits");
  return Value::integer(result);
}

Value double_arithmetic(const std::string& sign, double a, double b) {
  if (sign == "+") return Value::number(a + b);
  if (sign == "-") return Value::number(a - b);
  if (sign == "*") return Value::number(a * b);
  if (b == 0) throw TemplateProblem("a division by 0");
  if (sign == "/") return Value::number(a / b);
  if (sign == "//") return Value::number(std::floor(a / b));
  const double rest = std::fmod(a, b);
  return Value::number(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

std::string repeated(Budget& budget, const std::string& text, int64_t times) {
  std::string all;
  if (times <= 0 || text.empty()) return all;
  if (static_cast<uint64_t>(times) > Budget::kMaxBytes / text.size())
    budget.take(Budget::kMaxBytes + 1);
  for (int64_t i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace

const Value* member_of(Budget& budget, const Value& object, std::string_view name) {
  if (object.is_mapping()) budget.count_search(object.as_mapping());
  if (object.is(Value::Kind::kNamespace)) budget.count_search(object.as_namespace().members);
  return object.find(name);
}

std::vector<std::string> characters(Budget& budget, const std::string& text) {
  budget.step(length_of(Value::text(text)));
  std::vector<std::string> all;
  for (size_t i = 0; i < text.size();) {
    const uint32_t bytes = tokenizer::decode_char(&text[i]).bytes;
    all.push_back(text.substr(i, bytes));
    i += bytes;
  }
  return all;
}

int64_t length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_list()) return static_cast<int64_t>(value.as_list().size());
  if (value.is_mapping()) return static_cast<int64_t>(value.as_mapping().size());
  if (value.is(Value::Kind::kIterable) && !value.is_iterable(Value::Iterable::Kind::kGenerator))
    return static_cast<int64_t>(value.as_iterable().items->size());
  if (!value.is_text()) refuse_kind(value, "length");
  int64_t count = 0;
  for (const char c : value.as_text()) count += (static_cast<unsigned char>(c) & 0xc0u) != 0x80u;
  return count;
}

std::shared_ptr<const Value::List> elements_of(Budget& budget, const Value& value) {
  Value::List all;
  if (value.is_list()) return value.shared_list();
  if (value.is(Value::Kind::kIterable)) {
    const Value::Iterable& iterable = value.as_iterable();
    if (iterable.consumed)
      throw TemplateProblem("iterating over a generator twice is not supported");
    iterable.consumed = iterable.kind == Value::Iterable::Kind::kGenerator;
    return iterable.items;
  }
  if (value.is_text()) {
    for (std::string& character : characters(budget, value.as_text()))
      all.push_back(Value::text(std::move(character)));
  } else if (value.is_mapping()) {
    for (const auto& [name, member] : value.as_mapping()) all.push_back(Value::text(name));
  } else if (!value.is_undefined()) {
    refuse_kind(value, "a loop");
  }
  budget.take(all.size() * sizeof(Value));
  budget.step(static_cast<int64_t>(all.size()));
  return std::make_shared<const Value::List>(std::move(all));
}

Value attribute_of(Budget& budget, const Value& object, const std::string& name) {
  if (object.is_undefined()) refuse_kind(object, fmt::format("the attribute {}", name));
  if (object.is(Value::Kind::kLoop)) return loop_attribute(object.as_loop(), name);
  if (object.is_mapping() && std::ranges::count(kMappingMethods, name) > 0)
    throw TemplateProblem("the method {} without a call is not supported", name);
  if (name.starts_with("__")) throw TemplateProblem("the attribute {} is not supported", name);
  if (const Value* found = member_of(budget, object, name)) return *found;
  return Value::undefined(name);
}

Value element_of(Budget& budget, const Value& object, const Value& index) {
  if (object.is_undefined()) refuse_kind(object, fmt::format("the element {}", index.repr()));
  if (object.is_mapping() || object.is(Value::Kind::kNamespace)) {
    const Value* found = index.is_text() ? member_of(budget, object, index.as_text()) : nullptr;
    return found != nullptr ? *found : Value::undefined(index.shown());
  }
  if (object.is(Value::Kind::kLoop) && index.is_text())
    return loop_attribute(object.as_loop(), index.as_text());
  if (!index.is_integer()) return Value::undefined(index.shown());
  if (object.is_iterable(Value::Iterable::Kind::kRange)) {
    const auto& numbers = *object.as_iterable().items;
    const auto position = index_of(index.as_integer(), numbers.size());
    return position ? numbers[*position] : Value::undefined(index.shown());
  }
  if (object.is_list()) {
    const auto position = index_of(index.as_integer(), object.as_list().size());
    return position ? object.as_list()[*position] : Value::undefined(index.shown());
  }
  if (object.is_text()) {
    budget.read(object.weight());
    const std::string& text = object.as_text();
    auto position = index_of(index.as_integer(), static_cast<size_t>(length_of(object)));
    if (!position) return Value::undefined(index.shown());
    size_t at = 0;
    for (; *position > 0; --*position) at += tokenizer::decode_char(&text[at]).bytes;
    return budget.text(text.substr(at, tokenizer::decode_char(&text[at]).bytes));
  }
  return Value::undefined(index.shown());
}

Value slice_of(
    Budget& budget, const Value& object, const Value& begin, const Value& end, const Value& step) {
  if (!object.is_list() && !object.is_text()) refuse_kind(object, "a slice");
  for (const Value* bound : {&begin, &end, &step})
    if (!bound->is(Value::Kind::kNone) && !bound->is_integer())
      refuse_kind(*bound, "a slice bound");
  const auto chars =
      object.is_text() ? characters(budget, object.as_text()) : std::vector<std::string>();
  const auto size = static_cast<int64_t>(object.is_text() ? chars.size() : object.as_list().size());
  if (object.is_list()) budget.step(size);
  const int64_t by = step.is_integer() ? step.as_integer() : 1;
  if (by == 0) throw TemplateProblem("the step of a slice is 0");
  const auto clamped = [&](const Value& bound, int64_t otherwise) {
    if (!bound.is_integer()) return otherwise;
    const int64_t at = bound.as_integer() < 0 ? bound.as_integer() + size : bound.as_integer();
    return std::clamp<int64_t>(at, by > 0 ? 0 : -1, by > 0 ? size : size - 1);
  };
  const int64_t first = clamped(begin, by > 0 ? 0 : size - 1),
                last = clamped(end, by > 0 ? size : -1);
  Value::List kept;
  std::string text;
  for (Int128 i = first; by > 0 ? i < last : i > last; i += by) {
    const auto position = static_cast<size_t>(i);
    if (object.is_text()) {
      text += chars[position];
    } else {
      kept.push_back(object.as_list()[position]);
    }
  }
  if (object.is_text()) return budget.text(std::move(text));
  return budget.list(std::move(kept), object.is_tuple());
}

Value arithmetic(Budget& budget, const std::string& sign, const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer())
    return integer_arithmetic(sign, a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) return double_arithmetic(sign, a.as_double(), b.as_double());
  if (sign == "+" && a.is_text() && b.is_text()) {
    budget.take(a.as_text().size() + b.as_text().size());
    return Value::text(a.as_text() + b.as_text());
  }
  if (sign == "+" && a.is_list() && b.is_list() && a.is_tuple() == b.is_tuple()) {
    Value::List all = a.as_list();
    all.insert(all.end(), b.as_list().begin(), b.as_list().end());
    return budget.list(std::move(all), a.is_tuple());
  }
  if (sign == "*" && a.is_text() && b.is_integer())
    return budget.text(repeated(budget, a.as_text(), b.as_integer()));
  if (sign == "*" && b.is_text() && a.is_integer())
    return budget.text(repeated(budget, b.as_text(), a.as_integer()));
  for (const Value* value : {&a, &b})
    if (value->is_undefined()) refuse_kind(*value, fmt::format("operator {}", sign));
  throw TemplateProblem(
      "operator {}: values of type {} and {} are not allowed", sign, a.kind_name(), b.kind_name());
}

bool contains(Budget& budget, const Value& all, const Value& one) {
  if (all.is_text()) {
    if (!one.is_text()) refuse_kind(one, "'in' of a text");
    return find_text(all.as_text(), one.as_text()) != std::string::npos;
  }
  if (all.is_list()) return std::ranges::find(all.as_list(), one) != all.as_list().end();
  if (all.is(Value::Kind::kIterable)) {
    const auto elements = elements_of(budget, all);
    return std::ranges::find(*elements, one) != elements->end();
  }
  if (all.is_mapping()) return one.is_text() && member_of(budget, all, one.as_text()) != nullptr;
  if (all.is_undefined()) return false;
  refuse_kind(all, "'in'");
}

int order(const Value& a, const Value& b) {
  const auto by = [](const auto& x, const auto& y) {
    return x < y ? -1 : x == y ? 0 : y < x ? 1 : 2;
  };
  if (a.is_integer() && b.is_integer()) return by(a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) return by(a.as_double(), b.as_double());
  if (a.is_text() && b.is_text()) return by(a.as_text(), b.as_text());
  if (a.is_list() && b.is_list() && a.is_tuple() == b.is_tuple()) {
    const auto &x = a.as_list(), &y = b.as_list();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!(x[i] == y[i])) return order(x[i], y[i]);
    return by(x.size(), y.size());
  }
  for (const Value* value : {&a, &b})
    if (value->is_undefined()) refuse_kind(*value, "a comparison");
  throw TemplateProblem(
      "values of type {} and {} cannot be compared", a.kind_name(), b.kind_name());
}

}  // namespace lockstep::chat
