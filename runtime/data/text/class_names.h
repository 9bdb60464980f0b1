#pragma once
// The classes of text files: their names and indices, and their part of the data summary.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/data/class_spellings.h"
#include "runtime/data/dataset.h"
#include "runtime/data/placeholder.h"

namespace lockstep::data {

// Maps the names of classes to indices. Spellings of one class, such as True and TRUE, are
// compared by ClassSpellings.
class ClassNames {
 public:
  // `listed`: the names in their order, from the config field `field`. If empty, the classes are
  // the names in the training file, which must be passed to collect(). Throws ConfigError if a
  // class is listed twice, in equal or different spellings.
  ClassNames(const std::vector<std::string>& listed, const std::string& field);

  bool listed() const { return listed_; }

  // Adds a name of the training file, that of `samples` samples, if none are listed.
  void collect(std::string_view name, int64_t samples = 1);
  // Must be called after the last collect(). Sorts the names. But if `numbers_are_classes` and all
  // names are integers in [0, max_classes), each number is the index of its class.
  void finish(bool numbers_are_classes, int64_t max_classes);

  // The index of a class, or -1 if there is no such class.
  int32_t class_of(std::string_view name) const;
  int64_t classes() const { return classes_; }
  // (classes), or empty if the names are numbers.
  std::vector<std::string> names() const { return numbers_ ? std::vector<std::string>() : names_; }
  // The first collected name that is not a class number, if more than half of the names are: it may
  // be a mistake that turns all numbers into names. Otherwise empty.
  const std::string& odd_name() const { return odd_name_; }
  // Lists the first classes, for messages: "'no', 'yes'", "0 to 9".
  std::string list() const;
  // The end of an error about a name that is no class: the class that it looks like, or "".
  std::string look_alike(const std::string& name) const;
  // For the log: " in 5 spellings" if some classes have several, otherwise "".
  std::string describe_spellings() const;

 private:
  bool listed_;
  bool numbers_ = false;
  int64_t classes_ = 0;
  std::vector<std::string> names_;
  std::string odd_name_;
  ClassSpellings spellings_;
  std::unordered_map<std::string, int32_t>
      index_;  // by name, while they are collected; then by key
};

// How a format describes its data in the log.
struct TextWords {
  std::string texts;    // "labelled texts"
  const char* samples;  // "samples"
  const char* classes;  // "classes"
};

// The placeholder of missing files: with the model's number of outputs, otherwise with as many
// classes as `field` lists.
PlaceholderData placeholder_with_classes(const MissingFile& missing,
                                         const std::vector<std::string>& listed,
                                         const TextWords& words,
                                         const std::string& field);

// Adds the bad records and warnings of `samples`, for example LabelledSamples, to the summary.
// Returns how many of the texts were truncated.
template <typename Samples>
int64_t add_to_summary(const Samples& samples, DataSummary* summary) {
  summary->bad_records += samples.bad_records;
  summary->warnings.insert(
      summary->warnings.end(), samples.warnings.begin(), samples.warnings.end());
  return samples.cut;
}

// Completes the summary after the files have been read. `tokens`: the tokenizer's vocabulary.
// `classes`: null if the model does not predict classes. `cut`: number of truncated samples.
void summarise_texts(const TextWords& words,
                     const config::ModelTraits& model,
                     int64_t tokens,
                     const ClassNames* classes,
                     int64_t cut,
                     OpenedData* opened);

}  // namespace lockstep::data
