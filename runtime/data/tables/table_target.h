#pragma once
// The target column of a table: class labels, probabilities or values, as the loss wants them.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/model_traits.h"
#include "runtime/data/tables/table_columns.h"

namespace lockstep {

// Decodes targets; made from the training file, then also used for the evaluation file.
// - SOFTMAX_CROSS_ENTROPY: the names of the classes, sorted (as numbers when all are numbers).
// - BINARY_CROSS_ENTROPY: numbers in [0, 1] as they are, or else two names, of which the second
// is 1.
// - MEAN_SQUARED_ERROR: numbers as they are.
// A name with a '.' at its end that is no class stands for the class without it: the labels of UCI
// Adult's test file end so.
class TableTarget {
 public:
  // Throws DataError when the training targets do not fit the loss or the outputs of
  // the model.
  TableTarget(const TableSchema& schema,
              const TableColumns& table,
              const ModelTraits& model,
              const std::string& file_name);

  // How the schema must read the target column for a loss.
  static ColumnKind column_kind(Loss loss);

  bool is_label() const { return loss_ == Loss::kSoftmaxCrossEntropy; }
  const std::vector<std::string>& classes() const { return classes_; }  // empty for numbers

  // The target of every row, a class as its number; NaN for a target that is not allowed.
  std::vector<double> decode(const TableColumns& table) const;
  // "'x' is not one of ...", for such a row.
  std::string complaint(const TableColumns& table, int64_t row) const;

 private:
  double decode_name(const std::string& name) const;

  size_t column_;
  std::string column_name_;
  Loss loss_;
  std::vector<std::string> classes_;
};

}  // namespace lockstep
