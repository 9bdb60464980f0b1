#include "runtime/data/class_spellings.h"

#include <algorithm>
#include <array>
#include <map>

#include "runtime/base/names.h"

namespace lockstep::data {
namespace {

enum AnswerKind { kAnyKind, kTruth, kYesNo, kSwitch };

struct Answer {
  std::string_view word;
  AnswerKind kind;
  bool yes;
};
constexpr std::array kAnswers = {Answer{"0", kAnyKind, false},
                                 Answer{"1", kAnyKind, true},
                                 Answer{"0.0", kAnyKind, false},
                                 Answer{"1.0", kAnyKind, true},
                                 Answer{"false", kTruth, false},
                                 Answer{"true", kTruth, true},
                                 Answer{"f", kTruth, false},
                                 Answer{"t", kTruth, true},
                                 Answer{"no", kYesNo, false},
                                 Answer{"yes", kYesNo, true},
                                 Answer{"n", kYesNo, false},
                                 Answer{"y", kYesNo, true},
                                 Answer{"off", kSwitch, false},
                                 Answer{"on", kSwitch, true}};

// The answer that a name is, or null.
const Answer* answer_of(std::string_view name) {
  constexpr size_t kLongest = 64;  // with blanks; longer names are not worth a copy
  if (name.size() > kLongest) return nullptr;
  const std::string folded = folded_name(name);
  const auto* const found = std::ranges::find(kAnswers, folded, &Answer::word);
  return found == kAnswers.end() ? nullptr : found;
}

}  // namespace

void ClassSpellings::add(std::string_view name, int64_t samples) {
  samples_of_[std::string(name)] += samples;
}

void ClassSpellings::finish() {
  answers_ = !samples_of_.empty();
  kind_ = kAnyKind;
  for (const auto& [name, samples] : samples_of_) {
    const Answer* const answer = answer_of(name);
    answers_ = answer != nullptr &&
               (answer->kind == kAnyKind || kind_ == kAnyKind || answer->kind == kind_);
    if (!answers_) break;
    if (answer->kind != kAnyKind) kind_ = answer->kind;
  }
  std::map<std::string, int> keys;
  for (const auto& [name, samples] : samples_of_) merges_ |= ++keys[key_of(name)] > 1;
}

std::string ClassSpellings::key_of(std::string_view name) const {
  if (answers_) {
    const Answer* const answer = answer_of(name);
    if (answer != nullptr &&
        (answer->kind == kAnyKind || kind_ == kAnyKind || answer->kind == kind_))
      return answer->yes ? "1" : "0";
  }
  return normal_name(name);
}

std::vector<std::string> ClassSpellings::names() const {
  struct Spelling {
    const std::string* name;
    int64_t samples;
  };
  std::map<std::string, Spelling> best;  // by key
  for (const auto& [name, samples] : samples_of_) {
    Spelling& spelling = best.emplace(key_of(name), Spelling{&name, samples}).first->second;
    if (samples > spelling.samples || (samples == spelling.samples && name > *spelling.name))
      spelling = {&name, samples};
  }
  std::vector<std::string> names;
  for (const auto& [key, spelling] : best) names.push_back(*spelling.name);
  if (!(answers_ && merges_)) std::ranges::sort(names);
  return names;
}

}  // namespace lockstep::data
