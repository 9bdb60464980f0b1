#pragma once
// The target column of a table: class labels, probabilities or values.

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/config/model_traits.h"
#include "runtime/data/class_spellings.h"
#include "runtime/data/tables/table_columns.h"

namespace lockstep::data {

// Decodes targets. It is made from the training file and also used for the evaluation file.
// - kClass: the names of the classes, sorted (as numbers if all are numbers).
// - kYesNo: numbers in [0, 1], or two names: the first in sorted order is 0, the
//   second is 1.
// - kValues: numbers.
// Spellings of one class, such as True and TRUE, are compared by ClassSpellings.
// A name that ends with '.' and is not a class stands for the class without the '.', because the
// labels in UCI Adult's test file end like that.
class TableTarget {
 public:
  // Throws DataError if the training targets do not fit the kind of target or the model's outputs.
  TableTarget(const TableSchema& schema,
              size_t column,
              const TableColumns& table,
              const config::ModelTraits& model,
              const std::string& file_name);

  // The kind that the target column must have in the schema.
  static ColumnKind column_kind(config::TargetKind kind);

  bool is_label() const { return kind_ == config::TargetKind::kClass; }
  const std::vector<std::string>& classes() const { return classes_; }  // empty for numbers
  // For the log: ", 2 classes in 5 spellings"; "" for numbers.
  std::string describe_classes() const;

  // The target of every row: a class is its index, and a missing or invalid target is NaN.
  std::vector<double> decode(const TableColumns& table) const;
  // The error for a row with an invalid target: "column 'y': 'x' is not one of ...".
  std::string complaint(const TableColumns& table, int64_t row) const;

 private:
  double decode_name(const std::string& name) const;

  size_t column_;
  std::string column_name_;
  NumberFormat numbers_;
  config::TargetKind kind_;
  std::string values_note_;  // for messages: how to predict values, if the classes look like them
  ClassSpellings spellings_;
  std::vector<std::string> classes_;
  std::unordered_map<std::string, size_t> index_;  // of a class, by key
};

}  // namespace lockstep::data
