#pragma once
// From columns to model inputs: standardising, one-hot, missing values.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/data/tables/table_columns.h"

namespace lockstep {

// How one column becomes features, fitted on the training rows.
struct ColumnEncoding {
  size_t column = 0;  // in the schema
  ColumnKind kind = ColumnKind::kNumeric;
  int64_t first_feature = 0;
  int64_t features = 1;
  // Numeric: (x - mean) / std, then 0 where missing; if any training row is missing, a second
  // feature is 1 where missing and 0 elsewhere.
  double mean = 0;
  double std = 1;  // of the training rows (population); 1 for a constant column
  bool missing_indicator = false;
  // Categorical: one-hot over these names, sorted, then one slot for missing and for other names.
  std::vector<std::string> categories;
};

// The features of a table. Immutable; describes itself completely in encodings().
class TableEncoder {
 public:
  // Fits on `rows` of `table`. Throws DataError when no column is left or the features are too
  // many.
  TableEncoder(const TableSchema& schema,
               const TableColumns& table,
               std::span<const int64_t> rows,
               const std::string& file_name);

  int64_t features() const { return features_; }
  const std::vector<ColumnEncoding>& encodings() const { return encodings_; }

  // One cell per encoding and row: (rows, encodings()). A cell of a numeric column is the
  // standardised f32's bits, NaN where missing; of a categorical column the slot. Wide one-hot rows
  // stay this short until they are read.
  std::vector<uint32_t> encode(const TableColumns& table, std::span<const int64_t> rows) const;

  // Writes the features of one row of cells.
  void expand(const uint32_t* cells, float* features /* (features()) */) const;

 private:
  // What expand() needs of an encoding, small so that all of them stay in the nearest cache.
  struct Step {
    int32_t first_feature;
    bool categorical;
    bool missing_indicator;
  };

  std::vector<ColumnEncoding> encodings_;
  std::vector<Step> steps_;  // (encodings_)
  int64_t features_ = 0;
  bool plain_ = true;  // every cell is its one feature
};

}  // namespace lockstep
