#pragma once
// Names of classes in text files, and their numbers.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

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
  // The name of a class, for messages.
  std::string name_of(int64_t index) const;
  // "'no' and 'yes'"; of many the first ones.
  std::string list() const;

 private:
  bool listed_;
  bool numbers_ = false;
  int64_t classes_ = 0;
  std::vector<std::string> names_;
  std::unordered_map<std::string, int32_t> index_;
};

}  // namespace lockstep
