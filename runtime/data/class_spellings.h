#pragma once
// Which spellings of a label are the same class.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep::data {

// Names are compared in Unicode's composed form. Besides, labels that are all answers of one kind
// are compared without case and surrounding blanks: true and false, yes and no, or on and off. Then
// t, f, y and n are short forms, and 1 and 0 may stand for both kinds. So True, TRUE and 1 are one
// class, but only beside nothing else than such answers. The labels of the training file (or a
// list in the config) decide; those of other files are compared in the same way.
class ClassSpellings {
 public:
  // Adds a name that `samples` samples have. finish() must be called after the last one.
  void add(std::string_view name, int64_t samples = 1);
  void finish();

  // Equal for all spellings of a class. Of answers, it is "1" or "0".
  std::string key_of(std::string_view name) const;

  // The name of each class: its most frequent spelling. If several are equally frequent, it is the
  // last by bytes, so "yes" rather than "Yes" or "y". Names are sorted by their bytes; but no comes
  // before yes if an answer has several spellings.
  std::vector<std::string> names() const;
  // Different names that were added; more than names() if some are the same class.
  int64_t spellings() const { return static_cast<int64_t>(samples_of_.size()); }
  bool merges() const { return merges_; }

 private:
  std::unordered_map<std::string, int64_t> samples_of_;  // by name
  bool answers_ = false;
  int kind_ = 0;         // of the answers
  bool merges_ = false;  // a class has several spellings
};

}  // namespace lockstep::data
