#pragma once
// Files of JSON records: one on each line, or the elements of one array.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/json.h"
#include "runtime/base/text.h"

namespace lockstep::data {

// Finds the records of a text, which it does not parse: a record is a part of the text, so that a
// file of any size takes no memory beyond its own.
class JsonRecords {
 public:
  JsonRecords() : lines_({}) {}
  // Throws DataError if objects are spread over several lines without being elements of an array.
  // `name`: the file's, for messages, which have a command that converts the file.
  JsonRecords(std::string_view text, std::string name);

  // Sets *record to the next line that is not blank, or to the next element. Returns false after
  // the last one. Throws DataError if the array, or an element, does not end.
  bool next(std::string_view* record);

  int64_t number() const { return number_; }  // of the line on which the record begins, from 1
  // What next() has not returned yet.
  std::string_view rest() const { return is_array_ ? rest_ : lines_.rest(); }

 private:
  void skip_blanks();
  // The length of the value at the beginning of rest_.
  size_t length_of_element() const;

  std::string name_;
  Lines lines_;
  bool is_array_ = false;
  std::string_view rest_;  // of the array, after its bracket
  int64_t line_ = 1;       // of the beginning of rest_
  int64_t number_ = 0;
};

// What is wrong with a record that is not JSON, with the column.
std::string problem_in_line(const JsonError& error);

}  // namespace lockstep::data
