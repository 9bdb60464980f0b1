#include "runtime/cuda/algorithm_choices.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::cuda {
namespace {

constexpr std::string_view kArrow = " -> ";
constexpr const char* kRemedy =
    "remove the file or name another one in execution.tune, and the run times the algorithms again";

// What a request may name, in order; a request names at least the first ones.
struct Kind {
  std::string_view name;
  size_t required;
  std::vector<std::string_view> names;
};

const std::array<Kind, 2>& kinds() {
  static const std::array<Kind, 2> kKinds = {
      Kind{"product",
           3,
           {"m",
            "n",
            "k",
            "stride_a",
            "stride_b",
            "stride_out",
            "batch",
            "batch_a",
            "batch_b",
            "batch_out",
            "transpose_a",
            "transpose_b",
            "in",
            "out",
            "accumulate",
            "tf32",
            "epilogue"}},
      Kind{"convolution", 8, {"pass",    "batch",    "height",     "width",      "channels",
                              "outputs", "kernel_h", "kernel_w",   "stride_h",   "stride_w",
                              "pad_h",   "pad_w",    "dilation_h", "dilation_w", "groups",
                              "in",      "tf32",     "bias",       "relu",       "wide"}}};
  return kKinds;
}

bool is_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_';
  });
}

bool is_request(std::string_view text) {
  const std::vector<std::string> words = words_of(std::string(text));
  const auto kind = std::ranges::find(kinds(), words.empty() ? "" : words[0], &Kind::name);
  if (kind == kinds().end()) return false;
  size_t next = 0;  // of the kind's names
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string::npos || !is_word(words[i].substr(equals + 1))) return false;
    const std::string name = words[i].substr(0, equals);
    const auto found =
        std::find(kind->names.begin() + static_cast<std::ptrdiff_t>(next), kind->names.end(), name);
    if (found == kind->names.end()) return false;
    next = static_cast<size_t>(found - kind->names.begin()) + 1;
    if (next != i && i <= kind->required) return false;
  }
  return words.size() > kind->required;
}

}  // namespace

RequestText& RequestText::add(std::string_view name, int64_t value, int64_t usual) {
  if (value != usual) text_ += fmt::format(" {}={}", name, value);
  return *this;
}

RequestText& RequestText::add(std::string_view name, std::string_view word) {
  text_ += fmt::format(" {}={}", name, word);
  return *this;
}

AlgorithmChoices::AlgorithmChoices(std::string path, std::string_view text, Facts facts)
    : path_(std::move(path)), facts_(std::move(facts)) {
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    line = trimmed(line.substr(0, line.find('#')), " \t\r");
    begin = end + 1;
    ++number;
    if (!line.empty()) read_line(line, number);
  }
  if (facts_read_ < facts_.size())
    throw ConfigError("{}: has no line for '{}'; {}", path_, facts_[facts_read_].first, kRemedy);
}

void AlgorithmChoices::read_line(std::string_view line, int number) {
  if (facts_read_ < facts_.size()) {
    const auto& [name, here] = facts_[facts_read_++];
    if (!line.starts_with(name + ": "))
      throw ConfigError("{}:{}: is {}, but should begin with '{}: '; {}",
                        path_,
                        number,
                        in_quotes(line),
                        name,
                        kRemedy);
    const std::string_view value = trimmed(line.substr(name.size() + 2));
    if (value != here)
      throw ConfigError("{}:{}: the algorithms are for {} {}, but here it is {}; {}",
                        path_,
                        number,
                        name,
                        in_quotes(value),
                        in_quotes(here),
                        kRemedy);
    return;
  }
  const size_t arrow = line.find(kArrow);
  const std::string_view request = line.substr(0, std::min(arrow, line.size()));
  const std::string_view algorithm =
      arrow == std::string_view::npos ? "" : trimmed(line.substr(arrow + kArrow.size()));
  if (algorithm.empty() || !is_request(request))
    throw ConfigError("{}:{}: {} is not a request, ' -> ' and an algorithm; {}",
                      path_,
                      number,
                      in_quotes(line),
                      kRemedy);
  const auto [found, is_new] =
      choices_.try_emplace(std::string(request), Choice{std::string(algorithm), "", number});
  if (!is_new)
    throw ConfigError(
        "{}:{}: has the request of line {} again; {}", path_, number, found->second.line, kRemedy);
}

const AlgorithmChoices::Choice& AlgorithmChoices::at(const std::string& request) const {
  const auto found = choices_.find(request);
  if (found != choices_.end()) return found->second;
  throw ConfigError(
      "{}: has no algorithm for '{}', which this run needs: it was made for another model, batch, "
      "number of lanes or precision; {}",
      path_,
      request,
      kRemedy);
}

void AlgorithmChoices::refuse(const std::string& request, const std::string& why) const {
  const Choice& choice = at(request);
  throw ConfigError("{}:{}: the library refuses the algorithm '{}' for '{}' ({}); {}",
                    path_,
                    choice.line,
                    choice.algorithm,
                    request,
                    why,
                    kRemedy);
}

void AlgorithmChoices::add(const std::string& request, Choice choice) {
  LOCKSTEP_CHECK(is_request(request), "'{}' is no request ", request);
  choices_.insert_or_assign(request, std::move(choice));
}

std::string AlgorithmChoices::text() const {
  std::string text =
      "# The fastest algorithms of cuBLASLt and cuDNN, timed for execution.tune.\n"
      "# Runs with the same file get the same bits. Remove it to time them again.\n";
  for (const auto& [name, value] : facts_) text += fmt::format("{}: {}\n", name, value);
  for (const auto& [request, choice] : choices_) {
    text += request + std::string(kArrow) + choice.algorithm;
    if (!choice.comment.empty()) text += "  # " + choice.comment;
    text += "\n";
  }
  return text;
}

}  // namespace lockstep::cuda
