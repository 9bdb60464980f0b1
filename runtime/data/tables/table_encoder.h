#pragma once
// Encodes table columns as model inputs: standardisation, one-hot encoding, missing values.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/tables/table_columns.h"

namespace lockstep::data {

// The encoding of one column as features, fitted on the training rows.
struct ColumnEncoding {
  size_t column = 0;  // in the schema
  ColumnKind kind = ColumnKind::kNumeric;
  int64_t first_feature = 0;
  int64_t features = 1;
  // Numeric: (x - mean) / std, or 0 if x is missing. If x is missing in any training row, a second
  // feature is 1 for missing values and otherwise 0.
  double mean = 0;
  double std = 1;  // population standard deviation of the training rows; 1 for a constant column
  bool missing_indicator = false;
  // Categorical: one-hot over these names, sorted, and a last slot for missing and unknown values.
  std::vector<std::string> categories;
};

// Encodes the columns of a table. Immutable; encodings() describes it completely.
class TableEncoder {
 public:
  // Fits the encodings on `rows` of `table`. Throws DataError if there is no input column or if
  // there are too many features.
  TableEncoder(const TableSchema& schema,
               const TableColumns& table,
               std::span<const int64_t> rows,
               const std::string& file_name);

  int64_t features() const { return features_; }
  const std::vector<ColumnEncoding>& encodings() const { return encodings_; }

  // Returns (rows, encodings()) cells. A cell of a numeric column holds the bits of the
  // standardised f32 value, NaN if missing; a cell of a categorical column holds the slot. So
  // one-hot rows, which may be wide, take little memory until they are read.
  std::vector<uint32_t> encode(const TableColumns& table, std::span<const int64_t> rows) const;

  // Writes the features of one row of cells.
  void expand(const uint32_t* cells, float* features /* (features()) */) const;

 private:
  // The part of an encoding that expand() needs, kept small for the L1 cache.
  struct Step {
    int32_t first_feature;
    bool categorical;
    bool missing_indicator;
  };

  std::vector<ColumnEncoding> encodings_;
  std::vector<Step> steps_;  // (encodings_)
  int64_t features_ = 0;
  bool plain_ = true;  // every column is numeric with one feature
};

}  // namespace lockstep::data
