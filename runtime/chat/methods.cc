// Methods of texts, mappings and lists, and tests.
#include <algorithm>

#include "runtime/base/text.h"
#include "runtime/chat/evaluation.h"
#include "runtime/chat/letter_case.h"
#include "runtime/chat/lexer.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::chat {
namespace {

const std::string& text_argument(const Arguments& arguments,
                                 size_t index,
                                 std::string_view name,
                                 const std::string& method) {
  const Value& value = arguments.at(index, name, method);
  if (!value.is_text())
    throw TemplateProblem("{}: an argument of type {} is not allowed", method, value.kind_name());
  return value.as_text();
}

// Python's strip(): removes white space, or any of the characters in `set`.
std::string stripped(Budget& budget,
                     const std::string& text,
                     const Value* set,
                     bool left,
                     bool right,
                     const std::string& method) {
  std::string_view rest = text;
  if (set == nullptr || set->is(Value::Kind::kNone)) {
    if (left) rest.remove_prefix(leading_space(rest));
    if (right) rest.remove_suffix(trailing_space(rest));
    return std::string(rest);
  }
  if (!set->is_text())
    throw TemplateProblem("{}: an argument of type {} is not allowed", method, set->kind_name());
  const auto in_set = [&](std::string_view character) {
    budget.read(set->weight());
    return set->as_text().find(character) != std::string::npos;
  };
  while (left && !rest.empty()) {
    const size_t bytes = tokenizer::decode_char(rest.data()).bytes;
    if (!in_set(rest.substr(0, bytes))) break;
    rest.remove_prefix(bytes);
  }
  while (right && !rest.empty()) {
    const size_t begin = tokenizer::last_char_begin(rest);
    if (!in_set(rest.substr(begin))) break;
    rest = rest.substr(0, begin);
  }
  return std::string(rest);
}

// Makes at most `max_splits` splits; below 0: all. Without a separator, runs of white space
// separate.
std::vector<std::string> split(Budget& budget,
                               const std::string& text,
                               const std::string* separator,
                               int64_t max_splits,
                               bool from_right) {
  std::vector<std::string> parts;
  std::string_view rest = text;
  if (separator == nullptr) {
    rest.remove_prefix(leading_space(rest));
    rest.remove_suffix(trailing_space(rest));
    while (!rest.empty()) {
      budget.step();
      if (max_splits >= 0 && static_cast<int64_t>(parts.size()) >= max_splits) {
        parts.emplace_back(rest);
        break;
      }
      size_t end = 0;
      while (end < rest.size() && leading_space(rest.substr(end)) == 0) do
          ++end;
        while (end < rest.size() && (static_cast<unsigned char>(rest[end]) & 0xc0u) == 0x80u);
      parts.emplace_back(rest.substr(0, end));
      rest.remove_prefix(end);
      rest.remove_prefix(leading_space(rest));
    }
    return parts;
  }
  // Splitting from the right searches the reversed text, also in linear time.
  const auto backwards = [](std::string_view object) {
    return std::string(object.rbegin(), object.rend());
  };
  const std::string reversed = from_right ? backwards(text) : "",
                    reversed_separator = from_right ? backwards(*separator) : "";
  const auto find_next = [&] {
    if (!from_right) return find_text(rest, *separator);
    const size_t at = find_text(reversed, reversed_separator, text.size() - rest.size());
    return at == std::string_view::npos ? at : text.size() - at - separator->size();
  };
  while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
    budget.step();
    const size_t at = find_next();
    if (at == std::string_view::npos) break;
    if (from_right) {
      parts.emplace_back(rest.substr(at + separator->size()));
      rest = rest.substr(0, at);
    } else {
      parts.emplace_back(rest.substr(0, at));
      rest.remove_prefix(at + separator->size());
    }
  }
  parts.emplace_back(rest);
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

Value list_of(Budget& budget, std::vector<std::string> texts) {
  Value::List values;
  for (std::string& text : texts) values.push_back(budget.text(std::move(text)));
  return budget.list(std::move(values));
}

Value split_method(Budget& budget,
                   const std::string& text,
                   const std::string& name,
                   const Arguments& arguments) {
  arguments.check(name, {"sep", "maxsplit"});
  const Value *separator = arguments.find(0, "sep"), *maxsplit = arguments.find(1, "maxsplit");
  const bool none = separator == nullptr || separator->is(Value::Kind::kNone);
  if (none && name == "rsplit" && maxsplit != nullptr)
    throw TemplateProblem("rsplit of white space with maxsplit is not supported");
  if (!none && text_argument(arguments, 0, "sep", name).empty())
    throw TemplateProblem("{}: its separator is empty", name);
  if (maxsplit != nullptr && !maxsplit->is_integer())
    throw TemplateProblem("{}: maxsplit of type {} is not allowed", name, maxsplit->kind_name());
  return list_of(budget,
                 split(budget,
                       text,
                       none ? nullptr : &separator->as_text(),
                       maxsplit == nullptr ? -1 : maxsplit->as_integer(),
                       name == "rsplit"));
}

bool begins_or_ends(const std::string& text,
                    const Value& with,
                    bool begins,
                    const std::string& method) {
  if (with.is_tuple())
    return std::ranges::any_of(with.as_list(), [&](const Value& each) {
      return begins_or_ends(text, each, begins, method);
    });
  if (!with.is_text())
    throw TemplateProblem("{}: an argument of type {} is not allowed", method, with.kind_name());
  return begins ? text.starts_with(with.as_text()) : text.ends_with(with.as_text());
}

std::string replaced(Budget& budget,
                     const std::string& text,
                     const std::string& from,
                     const std::string& to,
                     int64_t max_count) {
  std::string out;
  size_t at = 0;
  for (int64_t times = 0; max_count < 0 || times < max_count; ++times) {
    if (from.empty()) {  // before each character, and at the end
      out += to;
      if (at >= text.size()) break;
      const size_t begin = at;
      do ++at;
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0u) == 0x80u);
      out += text.substr(begin, at - begin);
    } else {
      const size_t found = find_text(text, from, at);
      if (found == std::string::npos) break;
      out += text.substr(at, found - at);
      out += to;
      at = found + from.size();
    }
    if (out.size() > Budget::kMaxBytes) budget.take(out.size());
  }
  if (at < text.size()) out += text.substr(at);
  return out;
}

Value text_method(Budget& budget,
                  const std::string& text,
                  const std::string& name,
                  const Arguments& arguments) {
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    arguments.check(name, {"chars"});
    return budget.text(stripped(
        budget, text, arguments.find(0, "chars"), name != "rstrip", name != "lstrip", name));
  }
  if (name == "split" || name == "rsplit") return split_method(budget, text, name, arguments);
  if (name == "startswith" || name == "endswith") {
    arguments.check(name, {"prefix"});
    return Value::boolean(
        begins_or_ends(text, arguments.at(0, "prefix", name), name == "startswith", name));
  }
  if (name == "replace") {
    arguments.check(name, {"old", "new", "count"});
    const Value* count = arguments.find(2, "count");
    return budget.text(
        replaced(budget,
                 text,
                 text_argument(arguments, 0, "old", name),
                 text_argument(arguments, 1, "new", name),
                 count != nullptr && count->is_integer() ? count->as_integer() : -1));
  }
  if (name == "find" || name == "count") {
    arguments.check(name, {"sub"});
    const std::string& part = text_argument(arguments, 0, "sub", name);
    if (name == "find") {
      const size_t at = find_text(text, part);
      if (at == std::string::npos) return Value::integer(-1);
      return Value::integer(length_of(Value::text(text.substr(0, at))));
    }
    if (part.empty()) return Value::integer(length_of(Value::text(text)) + 1);
    int64_t count = 0;
    for (size_t at = find_text(text, part); at != std::string::npos;
         at = find_text(text, part, at + part.size()))
      ++count;
    return Value::integer(count);
  }
  if (name == "join") {
    arguments.check(name, {"iterable"});
    std::string out;
    const auto parts = elements_of(budget, arguments.at(0, "iterable", name));
    for (size_t i = 0; i < parts->size(); ++i) {
      if (!(*parts)[i].is_text())
        throw TemplateProblem("join: a value of type {} is not allowed", (*parts)[i].kind_name());
      out += (i > 0 ? text : "") + (*parts)[i].as_text();
      if (out.size() > Budget::kMaxBytes) budget.take(out.size());
    }
    return budget.text(std::move(out));
  }
  arguments.check(name, {});
  if (name == "upper") return budget.text(upper_case(text));
  if (name == "lower") return budget.text(lower_case(text));
  if (name == "title") return budget.text(title_case(text));
  if (name == "capitalize") return budget.text(capitalized(text));
  if (name == "isdigit") {
    bool other = false;  // a number that is not a decimal digit, such as '²' and '½'
    for (size_t i = 0; i < text.size();) {
      const tokenizer::DecodedChar c = tokenizer::decode_char(&text[i]);
      if (!is_decimal_digit(c.code) && !is_other_number(c.code)) return Value::boolean(false);
      other |= !is_decimal_digit(c.code);
      i += c.bytes;
    }
    if (other)
      throw TemplateProblem("isdigit of a number that is not a decimal digit is not supported");
    return Value::boolean(!text.empty());
  }
  throw TemplateProblem("the method {} of a text is not supported", name);
}

Value mapping_method(Budget& budget,
                     const Value& object,
                     const std::string& name,
                     const Arguments& arguments) {
  Value::List values;
  if (name == "get") {
    arguments.check(name, {"key", "default"});
    const Value& key = arguments.at(0, "key", name);
    const Value* found = key.is_text() ? member_of(budget, object, key.as_text()) : nullptr;
    if (found != nullptr) return *found;
    const Value* otherwise = arguments.find(1, "default");
    return otherwise != nullptr ? *otherwise : Value();
  }
  arguments.check(name, {});
  for (const auto& [key, member] : object.as_mapping()) {
    if (name == "keys") {
      values.push_back(Value::text(key));
    } else if (name == "values") {
      values.push_back(member);
    } else if (name == "items") {
      values.push_back(Value::list({Value::text(key), member}, true));
    }
  }
  if (name == "keys" || name == "values" || name == "items")
    return budget.iterable(Value::Iterable::Kind::kView, std::move(values));
  throw TemplateProblem("the method {} of a dict is not supported", name);
}

}  // namespace

Value call_method(Budget& budget,
                  const Value& object,
                  const std::string& name,
                  const Arguments& arguments) {
  if (object.is_undefined())
    throw TemplateProblem("the method {}: '{}' is undefined", name, object.undefined_name());
  if (object.is_text()) return text_method(budget, object.as_text(), name, arguments);
  if (object.is_mapping()) return mapping_method(budget, object, name, arguments);
  if (object.is(Value::Kind::kLoop) && name == "cycle") {
    if (arguments.values.empty()) throw TemplateProblem("cycle needs a value");
    return arguments.values[object.as_loop().index % arguments.values.size()];
  }
  if (object.is_list() && (name == "index" || name == "count")) {
    arguments.check(name, {"value"});
    const Value& wanted = arguments.at(0, "value", name);
    const auto& all = object.as_list();
    budget.read(object.weight());
    if (name == "count") return Value::integer(std::ranges::count(all, wanted));
    const auto found = std::ranges::find(all, wanted);
    if (found == all.end()) throw TemplateProblem("index: the value is not in the list");
    return Value::integer(found - all.begin());
  }
  throw TemplateProblem("the method {} of a {} is not supported", name, object.kind_name());
}

// Tests without arguments.
const std::vector<std::string> kTestsAlone = words_of(
    "defined undefined none string mapping sequence iterable number integer "
    "float boolean true false odd even callable");

bool apply_test(Budget& budget,
                const std::string& name,
                const Value& object,
                std::span<const Value> arguments) {
  const auto takes = [&](size_t count) {
    if (arguments.size() != count)
      throw TemplateProblem(
          "the test {} with {} arguments is not supported", name, arguments.size());
  };
  const auto integer = [&] {
    if (!object.is_integer())
      throw TemplateProblem(
          "the test {}: a value of type {} is not allowed", name, object.kind_name());
    return object.as_integer();
  };
  if (std::ranges::count(kTestsAlone, name) > 0) takes(0);
  if (name == "defined") return !object.is_undefined();
  if (name == "undefined") return object.is_undefined();
  if (name == "none") return object.is(Value::Kind::kNone);
  if (name == "string") return object.is_text();
  if (name == "mapping") return object.is_mapping();
  if (name == "iterable" && (object.is(Value::Kind::kIterable) || object.is(Value::Kind::kLoop)))
    return true;
  if (name == "sequence" || name == "iterable")
    return object.is_text() || object.is_list() || object.is_mapping() || object.is_undefined() ||
           object.is_iterable(Value::Iterable::Kind::kRange);
  if (name == "number") return object.is_number();
  if (name == "integer") return object.is(Value::Kind::kInteger);
  if (name == "float") return object.is(Value::Kind::kDouble);
  if (name == "boolean") return object.is(Value::Kind::kBoolean);
  if (name == "true" || name == "false")
    return object.is(Value::Kind::kBoolean) && (object.as_integer() != 0) == (name == "true");
  if (name == "odd") return integer() % 2 != 0;
  if (name == "even") return integer() % 2 == 0;
  if (name == "callable")  // as in Jinja, also for undefined values and loops
    return object.is(Value::Kind::kMacro) || object.is(Value::Kind::kLoop) || object.is_undefined();
  const auto other = [&]() -> const Value& {
    takes(1);
    return arguments[0];
  };
  if (name == "eq" || name == "equalto") return object == other();
  if (name == "ne") return !(object == other());
  if (name == "in") return contains(budget, other(), object);
  if (name == "lt" || name == "lessthan") return order(object, other()) == -1;
  if (name == "gt" || name == "greaterthan") return order(object, other()) == 1;
  if (name == "le") return order(object, other()) <= 0;
  if (name == "ge") return order(object, other()) == 0 || order(object, other()) == 1;
  if (name == "divisibleby") {
    if (!other().is_integer() || other().as_integer() == 0)
      throw TemplateProblem("divisibleby needs an integer other than 0");
    // INT64_MIN divided by -1 would overflow.
    const int64_t number = integer(), by = other().as_integer();
    return by == -1 || number % by == 0;
  }
  throw TemplateProblem("the test {} is not supported", name);
}

}  // namespace lockstep::chat
