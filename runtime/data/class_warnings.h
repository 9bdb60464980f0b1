#pragma once
// What is suspicious about the class labels of a data set: one rule for every source.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/label_counts.h"

namespace lockstep::data {

struct ClassLabels {
  std::string where = {};               // their file, column or section, for messages
  const char* unit = "sample";          // what has a label; the plural ends with "s"
  LabelCounts train = {}, eval = {};    // either may be empty
  int64_t classes = 0;                  // that the data define; labels are below it
  std::vector<std::string> names = {};  // of the classes, or empty if labels are numbers
  std::string for_values = {};          // how to predict values instead; empty: the model cannot
  bool one_class_is_enough = false;
  bool fixed_numbers = false;   // by the format, so that other numbers are no remedy
  bool words_reported = false;  // among numbers, by the format, which knows their lines
};

// Warnings about the labels, one line each. None without training labels. There is a warning if
// - all training samples have one class;
// - there are nearly as many classes as samples, or the names of the classes look like values;
// - the evaluation labels are the training labels plus a constant;
// - classes have no sample: labels that begin at 1, gaps;
// - the evaluation has classes that no training sample has, or only one class;
// - most names of classes are numbers, but not all;
// - the classes are called as the sets of a data set are: train, val;
// - names of classes differ only in case, blanks or the way in which a number is written.
std::vector<std::string> class_warnings(const ClassLabels& labels);

// Whether values are probably meant instead of classes: there are nearly as many classes as
// samples, or the names are numbers that are not all whole. `names`: may be empty.
bool look_like_values(const std::vector<std::string>& names, size_t classes, int64_t samples);

// Whether no name has a letter, but each a digit.
bool look_like_numbers(const std::vector<std::string>& names);

// The end of an error about a label that is too large: how the labels of this file are numbered, if
// they do not begin at 0. Otherwise empty.
std::string numbering_note(const LabelCounts& labels);

// The end of an error about a name that is no class: the class that it looks like, or "".
std::string look_alike_note(const std::string& name, const std::vector<std::string>& classes);

}  // namespace lockstep::data
