#pragma once
// Names of classes in text files and their numbers, and what formats of such files tell of them.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/data/assumed.h"
#include "runtime/data/dataset.h"

namespace lockstep {

class ClassNames {
 public:
  // `listed`: the names of the classes in their order, as `field` of the config says; none: those of
  // the training file, which collect() takes. Throws ConfigError where one is listed twice.
  ClassNames(const std::vector<std::string>& listed, const std::string& field);

  bool listed() const { return listed_; }

  // Of the training file, where none are listed.
  void collect(std::string_view name);
  // After the last one. Names become sorted; with `numbers_are_classes`, where all are whole numbers
  // from 0 below `most`, each is its own class.
  void finish(bool numbers_are_classes, int64_t most);

  // -1: there is no such class.
  int32_t class_of(std::string_view name) const;
  int64_t classes() const { return classes_; }
  // (classes); none where numbers are classes.
  std::vector<std::string> names() const { return numbers_ ? std::vector<std::string>() : names_; }
  // The first collected name that is no number of a class, where more than half of them are: then it
  // alone may be why all are names. Empty: there is none.
  const std::string& odd_name() const { return odd_name_; }
  // The name of a class, for messages.
  std::string name_of(int64_t index) const;
  // "'no' and 'yes'"; of many the first ones.
  std::string list() const;

 private:
  bool listed_;
  bool numbers_ = false;
  int64_t classes_ = 0;
  std::vector<std::string> names_;
  std::string odd_name_;
  std::unordered_map<std::string, int32_t> index_;
};

// What a format calls what it has, for a line of the log.
struct TextWords {
  std::string texts;    // "labelled texts"
  const char* samples;  // "samples"
  const char* classes;  // "classes"
};

// Of files that are not here: as many classes as `field` lists, else as many as the model says.
AssumedData assume_classes(const MissingFile& missing,
                           const std::vector<std::string>& listed,
                           const TextWords& words,
                           const std::string& field);

// Adds what was read of a file, such as LabelledSamples, and returns how many of its texts are cut.
template <typename Samples>
int64_t add_to_summary(const Samples& samples, DataSummary* summary) {
  summary->bad_records += samples.bad_records;
  summary->doubts.insert(summary->doubts.end(), samples.doubts.begin(), samples.doubts.end());
  return samples.cut;
}

// The rest of the summary, once the files are read. `tokens`: how many the tokenizer has; `classes`:
// null where the model predicts none; `cut`: samples that were longer than the context.
void summarise_texts(const TextWords& words,
                     const ModelTraits& model,
                     int64_t tokens,
                     const ClassNames* classes,
                     int64_t cut,
                     OpenedData* opened);

}  // namespace lockstep
