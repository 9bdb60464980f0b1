#include "runtime/data/tables/table_encoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/base/error.h"

namespace lockstep::data {
namespace {

constexpr int64_t kMaxFeatures = 10'000'000;

void fit_numeric(const TableColumn& column,
                 std::span<const int64_t> rows,
                 ColumnEncoding* encoding) {
  double sum = 0, min_value = std::numeric_limits<double>::infinity(), max_value = -min_value;
  int64_t present = 0;
  for (const int64_t row : rows) {
    const double value = column.numbers[row];
    if (std::isnan(value)) continue;
    sum += value;
    min_value = std::min(min_value, value);
    max_value = std::max(max_value, value);
    ++present;
  }
  encoding->missing_indicator = present < static_cast<int64_t>(rows.size());
  encoding->features = encoding->missing_indicator ? 2 : 1;
  if (present == 0) return;
  // Rounding could make the mean of a constant column differ from its value.
  encoding->mean = min_value == max_value ? min_value : sum / static_cast<double>(present);
  if (min_value == max_value) return;
  double squares = 0;
  for (const int64_t row : rows) {
    const double distance = column.numbers[row] - encoding->mean;
    if (!std::isnan(distance)) squares += distance * distance;
  }
  encoding->std = std::sqrt(squares / static_cast<double>(present));
  if (!(encoding->std > 0)) encoding->std = 1;  // the squares of small differences underflow
}

void fit_categorical(const TableColumn& column,
                     std::span<const int64_t> rows,
                     ColumnEncoding* encoding) {
  std::vector<bool> seen(column.names.size());
  for (const int64_t row : rows)
    if (column.ids[row] >= 0) seen[column.ids[row]] = true;
  for (size_t id = 0; id < seen.size(); ++id)
    if (seen[id]) encoding->categories.push_back(column.names[id]);
  std::ranges::sort(encoding->categories);
  encoding->features = static_cast<int64_t>(encoding->categories.size()) + 1;
}

// The slot of each name that a file has in a categorical column.
std::vector<uint32_t> slots_of(const std::vector<std::string>& names,
                               const ColumnEncoding& encoding) {
  const auto& known = encoding.categories;
  std::vector<uint32_t> slots;
  for (const std::string& name : names) {
    const auto at = std::ranges::lower_bound(known, name);
    const bool found = at != known.end() && *at == name;
    slots.push_back(static_cast<uint32_t>(found ? at - known.begin() : known.size()));
  }
  return slots;
}

}  // namespace

TableEncoder::TableEncoder(const TableSchema& schema,
                           const TableColumns& table,
                           std::span<const int64_t> rows,
                           const std::string& file_name) {
  for (size_t i = 0; i < schema.columns.size(); ++i) {
    const ColumnKind kind = schema.columns[i].kind;
    if (schema.is_target(i) || kind == ColumnKind::kIgnored) continue;
    ColumnEncoding encoding;
    encoding.column = i;
    encoding.kind = kind;
    encoding.first_feature = features_;
    if (kind == ColumnKind::kNumeric)
      fit_numeric(table.columns[i], rows, &encoding);
    else
      fit_categorical(table.columns[i], rows, &encoding);
    features_ += encoding.features;
    plain_ = plain_ && kind == ColumnKind::kNumeric && encoding.features == 1;
    if (features_ > kMaxFeatures)
      throw DataError(
          "{}: {} raises the number of features to {}, more than {}; name it in data.table.ignore",
          file_name,
          schema.describe(i),
          features_,
          kMaxFeatures);
    steps_.push_back({.first_feature = static_cast<int32_t>(encoding.first_feature),
                      .categorical = kind == ColumnKind::kCategorical,
                      .missing_indicator = encoding.missing_indicator});
    encodings_.push_back(std::move(encoding));
  }
  if (encodings_.empty())
    throw DataError(
        "{}: no input column is left besides the target and the columns of data.table.ignore",
        file_name);
}

std::vector<uint32_t> TableEncoder::encode(const TableColumns& table,
                                           std::span<const int64_t> rows) const {
  std::vector<uint32_t> cells(rows.size() * encodings_.size());
  for (size_t i = 0; i < encodings_.size(); ++i) {
    const ColumnEncoding& encoding = encodings_[i];
    const TableColumn& column = table.columns[encoding.column];
    uint32_t* cell = &cells[i];
    if (encoding.kind == ColumnKind::kNumeric) {
      for (const int64_t row : rows) {
        const double value = (column.numbers[row] - encoding.mean) / encoding.std;
        *cell = std::bit_cast<uint32_t>(static_cast<float>(value));
        cell += encodings_.size();
      }
      continue;
    }
    const std::vector<uint32_t> slots = slots_of(column.names, encoding);
    for (const int64_t row : rows) {
      const int32_t id = column.ids[row];
      *cell = id >= 0 ? slots[id] : static_cast<uint32_t>(encoding.features - 1);
      cell += encodings_.size();
    }
  }
  return cells;
}

void TableEncoder::expand(const uint32_t* cells, float* features) const {
  if (plain_) {
    // Values can be missing here only in evaluation, because no training row lacks one.
    for (int64_t i = 0; i < features_; ++i) {
      const float value = std::bit_cast<float>(cells[i]);
      features[i] = std::isnan(value) ? 0.0f : value;
    }
    return;
  }
  std::memset(features, 0, static_cast<size_t>(features_) * sizeof(float));
  for (const Step& step : steps_) {
    float* feature = features + step.first_feature;
    const uint32_t cell = *cells++;
    if (step.categorical) {
      feature[cell] = 1;
    } else if (const float value = std::bit_cast<float>(cell); !std::isnan(value)) {
      feature[0] = value;
    } else if (step.missing_indicator) {
      feature[1] = 1;
    }
  }
}

}  // namespace lockstep::data
