#include "runtime/data/text/json_lines.h"

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

void require_json_lines(std::string_view text, const std::string& name) {
  Lines lines(text);
  const std::string_view first = next_line(&lines), second = next_line(&lines);
  const bool array_on_each_line = first.ends_with(']') && second.starts_with('[');
  if (first.starts_with('[') && !array_on_each_line)
    throw DataError(
        "{}: is one JSON array; allowed: a JSON object on each line; to convert it: "
        "jq -c '.[]' FILE > FILE.jsonl",
        name);
  // An object that does not end on its line, and a second line that does not begin one.
  if (!first.starts_with('{') || first.ends_with('}')) return;
  if (!second.empty() && !second.starts_with('{'))
    throw DataError(
        "{}: has a JSON object that is spread over several lines; allowed: an object on each line; "
        "to convert it: jq -c . FILE > FILE.jsonl",
        name);
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
