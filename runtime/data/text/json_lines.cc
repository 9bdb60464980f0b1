#include "runtime/data/text/json_lines.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

// The next line that is not blank, without blanks at its ends; empty if there is none.
std::string_view next_line(Lines* lines) {
  for (std::string_view line; lines->next(&line);) {
    const size_t begin = line.find_first_not_of(kBlanks);
    if (begin != std::string_view::npos)
      return line.substr(begin, line.find_last_not_of(kBlanks) + 1 - begin);
  }
  return {};
}

}  // namespace

JsonRecords::JsonRecords(std::string_view text, std::string name)
    : name_(std::move(name)), lines_(text) {
  Lines lines(text);
  const std::string_view first = next_line(&lines), second = next_line(&lines);
  const bool array_on_each_line = first.ends_with(']') && second.starts_with('[');
  is_array_ = first.starts_with('[') && !array_on_each_line;
  if (is_array_) {
    rest_ = text;
    skip_blanks();
    rest_.remove_prefix(1);
    return;
  }
  // An object that does not end on its line, and a second line that does not begin one.
  if (!first.starts_with('{') || first.ends_with('}')) return;
  if (!second.empty() && !second.starts_with('{'))
    throw DataError(
        "{}: has a JSON object that is spread over several lines; allowed: an object on each line, "
        "or one array; to convert it: jq -c . FILE > FILE.jsonl",
        name_);
}

void JsonRecords::skip_blanks() {
  size_t i = 0;
  for (; i < rest_.size() && kBlanks.find(rest_[i]) != std::string_view::npos; ++i)
    if (rest_[i] == '\n') ++line_;
  rest_.remove_prefix(i);
}

// Brackets and quotes are enough to find the end; the parser checks the rest.
size_t JsonRecords::length_of_element() const {
  size_t depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < rest_.size(); ++i) {
    const char c = rest_[i];
    if (quoted) {
      if (c == '\\')
        ++i;
      else
        quoted = c != '"';
    } else if (depth == 0 && (c == ',' || c == ']')) {
      return i;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth > 0) --depth;
    }
  }
  throw DataError(
      "{}:{}: the element of the JSON array that begins here has no end: the file is cut, or a "
      "quote or bracket is missing",
      name_,
      line_);
}

bool JsonRecords::next(std::string_view* record) {
  if (!is_array_) {
    while (lines_.next(record))
      if (record->find_first_not_of(kBlanks) != std::string_view::npos) {
        number_ = lines_.number();
        return true;
      }
    return false;
  }
  skip_blanks();
  if (number_ > 0 && rest_.starts_with(',')) {
    rest_.remove_prefix(1);
    skip_blanks();
  }
  if (rest_.empty()) {
    if (number_ < 0) return false;  // the array has ended
    throw DataError("{}: the JSON array has no end; the file is truncated", name_);
  }
  if (rest_.starts_with(']')) {
    rest_.remove_prefix(1);
    skip_blanks();
    if (!rest_.empty())
      throw DataError("{}:{}: has text after the end of the JSON array", name_, line_);
    number_ = -1;
    return false;
  }
  const size_t length = length_of_element();
  number_ = line_;
  *record = rest_.substr(0, length);
  line_ += std::ranges::count(*record, '\n');
  rest_.remove_prefix(length);
  return true;
}

std::string problem_in_line(const JsonError& error) {
  constexpr std::string_view kLine = "line 1, ";
  std::string problem = error.what();
  if (const size_t at = problem.find(kLine); at != std::string::npos)
    problem.erase(at, kLine.size());
  constexpr std::string_view kWhile = "syntax error while parsing ", kThen = " - ";
  if (const size_t at = problem.find(kWhile); at != std::string::npos)
    if (const size_t then = problem.find(kThen, at); then != std::string::npos)
      problem.erase(at, then + kThen.size() - at);
  if (problem.find("surrogate") != std::string::npos)
    problem += "; \\ud800 to \\udfff are halves of a character and need the other half";
  else if (problem.find("unexpected ','; expected end") != std::string::npos)
    problem += "; a line has no comma after its object";
  else if (problem.find("last read: '{'") != std::string::npos &&
           problem.ends_with("string literal"))
    problem += "; names and text are in double quotes in JSON, not in single quotes";
  else if (problem.ends_with("N'") || problem.ends_with("I'"))
    problem += "; NaN and Infinity are not JSON: write null";
  return problem;
}

}  // namespace lockstep::data
