#include "runtime/data/images/npy_file.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "runtime/base/error.h"
#include "runtime/data/class_warnings.h"
#include "runtime/data/images/image.h"

namespace lockstep::data {
namespace {

int64_t integer_at(const NpyArray& array, int64_t index) {
  switch (array.type) {
    case NpyType::kBool: return value_at<uint8_t>(array, index) != 0 ? 1 : 0;
    case NpyType::kUint8: return value_at<uint8_t>(array, index);
    case NpyType::kInt32: return value_at<int32_t>(array, index);
    default: return value_at<int64_t>(array, index);
  }
}

double number_at(const NpyArray& array, int64_t index) {
  return array.type == NpyType::kFloat32 ? double{value_at<float>(array, index)}
                                         : static_cast<double>(integer_at(array, index));
}

// Whether each row of (samples, classes) has a single 1 and otherwise 0.
bool is_one_hot(const NpyArray& array) {
  if (array.extents.size() != 2 || array.extents[1] < 2) return false;
  for (int64_t row = 0; row < array.count(); ++row) {
    int64_t ones = 0;
    for (int64_t i = row * array.extents[1]; i < (row + 1) * array.extents[1]; ++i) {
      const double value = number_at(array, i);
      if (value != 0 && value != 1) return false;
      ones += value == 1 ? 1 : 0;
    }
    if (ones != 1) return false;
  }
  return true;
}

void check_shape(const NpyArray& array, const std::string& name) {
  if (array.extents.size() == 1 || (array.extents.size() == 2 && array.extents[1] == 1)) return;
  if (is_one_hot(array))
    throw DataError(
        "{}: has one-hot labels, rows of {} numbers; allowed: one class number for each sample, "
        "as from numpy.argmax(y, axis=1)",
        name,
        array.extents[1]);
  throw DataError("{}: has labels of {} dimensions; allowed: one label for each sample",
                  name,
                  array.extents.size());
}

[[noreturn]] void refuse_floats(const NpyArray& array,
                                const std::string& name,
                                const config::ModelTraits& model) {
  for (int64_t i = 0; i < array.count(); ++i) {
    const auto value = value_at<float>(array, i);
    if (value == std::floor(value)) continue;
    throw DataError(
        "{}: has float32 labels, and label {} of sample {} is no class; allowed: bool, uint8, "
        "int32 and int64{}",
        name,
        value,
        i,
        model.input == config::ModelInput::kFeatures
            ? fmt::format("; to predict values, set {}: MEAN_SQUARED_ERROR", model.field("loss"))
            : "");
  }
  throw DataError(
      "{}: has float32 labels, all of them whole numbers; allowed: bool, uint8, int32 and int64, "
      "as from y.astype(numpy.int64)",
      name);
}

// How labels below 0 become classes.
std::string remedy_for_negative(const NpyArray& array) {
  bool signs = true;
  int64_t least = 0;
  for (int64_t i = 0; i < array.count(); ++i) {
    const int64_t label = integer_at(array, i);
    signs &= label == -1 || label == 1;
    least = std::min(least, label);
  }
  return signs ? std::string("; make 0 and 1 of -1 and 1 with (y + 1) // 2")
               : fmt::format("; the smallest label is {}, but classes are counted from 0", least);
}

}  // namespace

std::vector<int32_t> read_npy_labels(const NpyFile& labels,
                                     int64_t classes,
                                     const config::ModelTraits& model) {
  const NpyArray& array = labels.array;
  const std::string& name = labels.file.name();
  check_shape(array, name);
  if (array.type == NpyType::kFloat32) refuse_floats(array, name, model);
  std::vector<int32_t> result(static_cast<size_t>(array.count()));
  for (int64_t i = 0; i < array.count(); ++i) {
    const int64_t label = integer_at(array, i);
    if (label < 0 || label >= classes) {
      LabelCounts counts;
      for (int64_t j = 0; j < array.count(); ++j) {
        const int64_t other = integer_at(array, j);
        if (other >= 0 && other < kMaxClasses) counts.add(static_cast<int32_t>(other));
      }
      throw DataError("{}: label {} of sample {}; allowed: 0..{}{}",
                      name,
                      label,
                      i,
                      classes - 1,
                      label < 0 ? remedy_for_negative(array) : numbering_note(counts));
    }
    result[static_cast<size_t>(i)] = static_cast<int32_t>(label);
  }
  return result;
}

}  // namespace lockstep::data
