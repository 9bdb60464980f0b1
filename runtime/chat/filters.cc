// Filters of chat templates.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "runtime/chat/evaluation.h"
#include "runtime/chat/letter_case.h"
#include "runtime/chat/lexer.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::chat {
namespace {

// The arguments of a filter.
struct Call {
  Budget& budget;
  const std::string& name;
  const Value& object;
  const Arguments& arguments;

  void takes(std::initializer_list<std::string_view> names) const {
    arguments.check("filter " + name, names);
  }
  const Value* find(size_t index, std::string_view argument) const {
    return arguments.find(index, argument);
  }
  bool flag(size_t index, std::string_view argument) const {
    const Value* found = find(index, argument);
    return found != nullptr && found->truth();
  }
  std::string text(size_t index, std::string_view argument, std::string otherwise) const {
    const Value* found = find(index, argument);
    return found == nullptr ? std::move(otherwise) : found->shown();
  }
  std::shared_ptr<const Value::List> elements() const { return elements_of(budget, object); }
  Value generator(Value::List values) const {
    return budget.iterable(Value::Iterable::Kind::kGenerator, std::move(values));
  }
};

// The member at a path "a.b.0" of a value; undefined if there is none.
Value member(const Call& call, const Value& object, const Value& path) {
  if (path.is_integer()) return element_of(call.budget, object, path);
  Value value = object;
  std::string_view rest = path.as_text();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view name = rest.substr(0, dot);
    const bool number = !name.empty() && name.size() < 10 &&
                        std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
    value = element_of(
        call.budget,
        value,
        number ? Value::integer(std::stoi(std::string(name))) : Value::text(std::string(name)));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

const Value& path_of(const Call& call, const Value* path) {
  if (path == nullptr || (!path->is_text() && !path->is_integer()))
    throw TemplateProblem("filter {} needs the name of an attribute", call.name);
  return *path;
}

Value tojson(const Call& call) {
  call.takes({"ensure_ascii", "indent", "separators", "sort_keys"});
  if (call.find(2, "separators") != nullptr)
    throw TemplateProblem("tojson with separators is not supported");
  const Value* indent = call.find(1, "indent");
  constexpr int64_t kMaxIndent = 64;
  int spaces = -1;
  if (indent != nullptr && !indent->is(Value::Kind::kNone)) {
    if (!indent->is_integer() || indent->as_integer() < 0 || indent->as_integer() > kMaxIndent)
      throw TemplateProblem("tojson with indent {} is not supported", indent->repr());
    spaces = static_cast<int>(indent->as_integer());
  }
  return call.budget.text(
      python_json(call.object, spaces, call.flag(3, "sort_keys"), call.flag(0, "ensure_ascii")));
}

Value join(const Call& call) {
  call.takes({"d", "attribute"});
  const std::string between = call.text(0, "d", "");
  const Value* attribute = call.find(1, "attribute");
  std::string out;
  const auto elements = call.elements();
  for (size_t i = 0; i < elements->size(); ++i) {
    if (i > 0) out += between;
    const Value& element = (*elements)[i];
    out += attribute == nullptr ? element.shown()
                                : member(call, element, path_of(call, attribute)).shown();
    if (out.size() > Budget::kMaxOutput) call.budget.take(Budget::kMaxBytes);
  }
  return call.budget.text(std::move(out));
}

Value otherwise(const Call& call) {
  call.takes({"default_value", "boolean"});
  const bool missing =
      call.object.is_undefined() || (call.flag(1, "boolean") && !call.object.truth());
  if (!missing) return call.object;
  const Value* value = call.find(0, "default_value");
  return value != nullptr ? *value : Value::text("");
}

Value end_of(const Call& call) {
  call.takes({});
  if (call.name == "last" && call.object.is_iterable(Value::Iterable::Kind::kGenerator))
    throw TemplateProblem("filter last of a generator is not supported");
  const auto elements = call.elements();
  if (elements->empty()) return Value::undefined(fmt::format("the {} of an empty list", call.name));
  return call.name == "first" ? elements->front() : elements->back();
}

// selectattr, rejectattr, select, reject.
Value chosen(const Call& call) {
  const bool by_attribute = call.name.ends_with("attr"), wanted = call.name.starts_with("select");
  const auto& given = call.arguments.values;
  if (!call.arguments.named.empty())
    throw TemplateProblem("filter {} with named arguments is not supported", call.name);
  const size_t first = by_attribute ? 1 : 0;
  if (by_attribute) path_of(call, call.find(0, ""));
  if (given.size() > first && !given[first].is_text())
    throw TemplateProblem("filter {} needs the name of a test", call.name);
  Value::List kept;
  const auto elements = call.elements();
  for (const Value& element : *elements) {
    call.budget.step();
    if (given.size() > first + 1) call.budget.read(given[first + 1].weight());
    const Value value = by_attribute ? member(call, element, given[0]) : element;
    const bool holds =
        given.size() > first
            ? apply_test(
                  call.budget, given[first].as_text(), value, std::span(given).subspan(first + 1))
            : value.truth();
    if (holds == wanted) kept.push_back(element);
  }
  return call.generator(std::move(kept));
}

Value mapped(const Call& call) {
  Value::List values;
  const Value* attribute = nullptr;
  const Value* missing = nullptr;
  for (const auto& [key, value] : call.arguments.named) {
    if (key == "attribute") {
      attribute = &value;
    } else if (key == "default") {
      missing = &value;
    } else {
      throw TemplateProblem("map with the argument {} is not supported", key);
    }
  }
  const auto& given = call.arguments.values;
  if ((attribute == nullptr) == given.empty() || (!given.empty() && !given[0].is_text()))
    throw TemplateProblem("map needs either an attribute or the name of a filter");
  const auto elements = call.elements();
  for (const Value& element : *elements) {
    call.budget.step();
    if (attribute != nullptr) {
      const Value value = member(call, element, path_of(call, attribute));
      values.push_back(value.is_undefined() && missing != nullptr ? *missing : value);
    } else {
      Arguments rest;
      rest.values.assign(given.begin() + 1, given.end());
      values.push_back(apply_filter(call.budget, given[0].as_text(), element, rest));
    }
  }
  return call.generator(std::move(values));
}

// Python's sorted(). Texts are compared without regard to case, as in Jinja.
Value sorted(const Call& call) {
  call.takes({"reverse", "case_sensitive", "attribute"});
  const Value* attribute = call.find(2, "attribute");
  const bool reverse = call.flag(0, "reverse"), by_case = call.flag(1, "case_sensitive");
  std::vector<std::pair<Value, Value>> keyed;
  const auto elements = call.elements();
  for (const Value& element : *elements) {
    Value key = attribute == nullptr ? element : member(call, element, path_of(call, attribute));
    if (key.is_text() && !by_case) key = Value::text(lower_case(key.as_text()));
    call.budget.read(key.weight(), 16);
    keyed.emplace_back(std::move(key), element);
  }
  call.budget.step(static_cast<int64_t>(keyed.size()) * 16);
  // Throws if they have no order.
  for (const auto& [key, element] : keyed) order(key, keyed[0].first);
  std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
    return reverse ? order(b.first, a.first) < 0 : order(a.first, b.first) < 0;
  });
  Value::List values;
  for (auto& [key, element] : keyed) values.push_back(std::move(element));
  return call.budget.list(std::move(values));
}

Value unique(const Call& call) {
  call.takes({});
  Value::List kept, keys;
  const auto elements = call.elements();
  for (const Value& element : *elements) {
    Value key = element.is_text() ? Value::text(lower_case(element.as_text())) : element;
    call.budget.step(static_cast<int64_t>(keys.size()));
    call.budget.read(key.weight(), keys.size() + 1);
    if (std::ranges::find(keys, key) != keys.end()) continue;
    keys.push_back(std::move(key));
    kept.push_back(element);
  }
  return call.generator(std::move(kept));
}

Value reversed(const Call& call) {
  call.takes({});
  Value::List values(*call.elements());
  std::ranges::reverse(values);
  if (call.object.is_iterable(Value::Iterable::Kind::kGenerator))
    return call.budget.list(std::move(values));
  if (!call.object.is_text()) return call.generator(std::move(values));
  std::string text;
  for (const Value& value : values) text += value.as_text();
  return call.budget.text(std::move(text));
}

Value items(const Call& call) {
  call.takes({});
  if (call.object.is_undefined()) return call.generator({});
  if (!call.object.is_mapping())
    throw TemplateProblem("filter items: a value of type {} is not allowed",
                          call.object.kind_name());
  Arguments none;
  const Value all = call_method(call.budget, call.object, "items", none);
  return call.generator(*all.as_iterable().items);
}

Value dictsort(const Call& call) {
  call.takes({});
  if (!call.object.is_mapping())
    throw TemplateProblem("filter dictsort: a value of type {} is not allowed",
                          call.object.kind_name());
  const Value all = items(call);
  Arguments by_first;
  by_first.named.emplace_back("attribute", Value::integer(0));
  return apply_filter(call.budget, "sort", all, by_first);
}

// Normalizes a text as Python's int() and float() do: removes white space around it and the '_'
// that may separate digits. No value if it has another '_' or characters that no number has.
std::optional<std::string> number_text(const std::string& text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const std::string inner =
      text.substr(leading_space(text),
                  text.size() - std::min(text.size(), leading_space(text) + trailing_space(text)));
  std::string plain;
  for (size_t i = 0; i < inner.size(); ++i) {
    const char c = inner[i];
    if (static_cast<unsigned char>(c) >= 0x80) {
      if (!is_decimal_digit(tokenizer::decode_char(&inner[i]).code)) return std::nullopt;
      throw TemplateProblem("a number with digits that are not ASCII is not supported");
    }
    if (c == '_') {
      if (i == 0 || i + 1 == inner.size() || !is_digit(inner[i - 1]) || !is_digit(inner[i + 1]))
        return std::nullopt;
    } else if (is_digit(c) || std::string_view("+-.eEinfatyINFATY").find(c) != std::string::npos) {
      plain += c;  // also inf and nan
    } else {
      return std::nullopt;
    }
  }
  if (plain.empty()) return std::nullopt;
  return plain;
}

Value to_number(const Call& call) {
  call.takes({"default"});
  const bool wants_integer = call.name == "int";
  const Value* given = call.find(0, "default");
  const Value missing = given != nullptr ? *given
                        : wants_integer  ? Value::integer(0)
                                         : Value::number(0);
  double number = 0;
  if (call.object.is_undefined())
    throw TemplateProblem("filter {}: '{}' is undefined", call.name, call.object.undefined_name());
  if (call.object.is_number()) {
    if (call.object.is_integer() && wants_integer) return Value::integer(call.object.as_integer());
    number = call.object.as_double();
  } else if (call.object.is_text()) {
    const std::optional<std::string> text = number_text(call.object.as_text());
    if (!text) return missing;
    int64_t exact = 0;
    const char* const stop = text->data() + text->size();
    const bool sign = text->size() > 1 && (*text)[0] == '+' && (*text)[1] != '-';
    const auto read = std::from_chars(text->data() + (sign ? 1 : 0), stop, exact);
    if (wants_integer && read.ec == std::errc() && read.ptr == stop) return Value::integer(exact);
    char* end = nullptr;
    number = std::strtod(text->c_str(), &end);
    if (*end != '\0') return missing;
  } else {
    return missing;
  }
  if (!wants_integer) return Value::number(number);
  if (!std::isfinite(number)) return missing;
  if (std::abs(number) >= 0x1p63) throw TemplateProblem("an integer of more than 64 bits");
  return Value::integer(static_cast<int64_t>(number));
}

// Python's splitlines().
std::vector<std::string> lines_of(Budget& budget, const std::string& text) {
  std::vector<std::string> lines;
  std::string line;
  for (size_t i = 0; i < text.size();) {
    const tokenizer::DecodedChar c = tokenizer::decode_char(&text[i]);
    const bool breaks = (c.code >= 0x0a && c.code <= 0x0d) || (c.code >= 0x1c && c.code <= 0x1e) ||
                        c.code == 0x85 || c.code == 0x2028 || c.code == 0x2029;
    if (breaks) {
      budget.take(sizeof(std::string));
      lines.push_back(std::move(line));
      line.clear();
    } else {
      line.append(text, i, c.bytes);
    }
    i += c.bytes;
    if (c.code == '\r' && i < text.size() && text[i] == '\n') ++i;
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

Value indented(const Call& call) {
  call.takes({"width", "first", "blank"});
  if (!call.object.is_text())
    throw TemplateProblem("filter indent: a value of type {} is not allowed",
                          call.object.kind_name());
  const Value* width = call.find(0, "width");
  std::string blanks(4, ' ');
  if (width != nullptr) {
    constexpr int64_t kMaxWidth = 1000;
    if (width->is_text()) {
      blanks = width->as_text();
    } else if (width->is_integer() && width->as_integer() >= 0 &&
               width->as_integer() <= kMaxWidth) {
      blanks.assign(static_cast<size_t>(width->as_integer()), ' ');
    } else {
      throw TemplateProblem("filter indent by {} is not supported", width->repr());
    }
  }
  const bool blank = call.flag(2, "blank");
  std::string out;
  // Jinja splits the text with a line break appended.
  const std::vector<std::string> lines = lines_of(call.budget, call.object.as_text() + "\n");
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool indents = i == 0 ? call.flag(1, "first") : blank || !lines[i].empty();
    if (i > 0) out += '\n';
    if (indents) out += blanks;
    out += lines[i];
    if (out.size() > Budget::kMaxBytes) call.budget.take(out.size());
  }
  return call.budget.text(std::move(out));
}

Value texts(const Call& call) {
  const std::string& name = call.name;
  const std::string text = call.object.shown();
  Arguments none;
  if (name == "trim") {
    call.takes({"chars"});
    return call_method(call.budget, Value::text(text), "strip", call.arguments);
  }
  if (name == "replace") {
    call.takes({"old", "new", "count"});
    Arguments arguments;
    arguments.values = {Value::text(call.text(0, "old", "")), Value::text(call.text(1, "new", ""))};
    if (const Value* count = call.find(2, "count")) arguments.values.push_back(*count);
    return call_method(call.budget, Value::text(text), "replace", arguments);
  }
  call.takes({});
  if (name == "upper") return call.budget.text(upper_case(text));
  if (name == "lower") return call.budget.text(lower_case(text));
  if (name == "capitalize") return call.budget.text(capitalized(text));
  if (name == "title") return call.budget.text(title_words(text));
  return call.budget.text(text);  // string
}

Value length(const Call& call) {
  call.takes({});
  return Value::integer(length_of(call.object));
}

struct Filter {
  std::string_view name;
  Value (*apply)(const Call& call);
};

constexpr Filter kFilters[] = {
    {"capitalize", texts},
    {"count", length},
    {"d", otherwise},
    {"default", otherwise},
    {"dictsort", dictsort},
    {"first", end_of},
    {"float", to_number},
    {"indent", indented},
    {"int", to_number},
    {"items", items},
    {"join", join},
    {"last", end_of},
    {"length", length},
    {"list",
     [](const Call& call) {
       call.takes({});
       return call.budget.list(*call.elements());
     }},
    {"lower", texts},
    {"map", mapped},
    {"reject", chosen},
    {"rejectattr", chosen},
    {"replace", texts},
    {"reverse", reversed},
    {"select", chosen},
    {"selectattr", chosen},
    {"sort", sorted},
    {"string", texts},
    {"title", texts},
    {"tojson", tojson},
    {"trim", texts},
    {"unique", unique},
    {"upper", texts},
};

}  // namespace

Value apply_filter(Budget& budget,
                   const std::string& name,
                   const Value& object,
                   const Arguments& arguments) {
  const auto found = std::ranges::find(kFilters, name, &Filter::name);
  if (found == std::end(kFilters)) throw TemplateProblem("the filter {} is not supported", name);
  return found->apply({budget, name, object, arguments});
}

}  // namespace lockstep::chat
