#include "runtime/data/tables/table_target.h"

#include <algorithm>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/data/tables/csv.h"

namespace lockstep {
namespace {

constexpr size_t kNamesShown = 6;
constexpr double kNotAllowed = std::numeric_limits<double>::quiet_NaN();

bool is_probability(const std::string& name) {
  double number;
  return parse_number(name, &number) && number >= 0 && number <= 1;
}

void sort_names(std::vector<std::string>* names) {
  std::sort(names->begin(), names->end());
  double number;
  if (!std::all_of(names->begin(), names->end(), [&](const auto& name) {
        return parse_number(name, &number);
      }))
    return;
  std::stable_sort(names->begin(), names->end(), [](const std::string& a, const std::string& b) {
    double left = 0, right = 0;
    parse_number(a, &left);
    parse_number(b, &right);
    return left < right;
  });
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamesShown); ++i)
    text += fmt::format("{}'{}'", i > 0 ? ", " : "", names[i]);
  if (names.size() > kNamesShown) text += fmt::format(" and {} more", names.size() - kNamesShown);
  return text;
}

}  // namespace

ColumnKind TableTarget::column_kind(Loss loss) {
  return loss == Loss::kMeanSquaredError ? ColumnKind::kNumeric : ColumnKind::kCategorical;
}

TableTarget::TableTarget(const TableSchema& schema,
                         const TableColumns& table,
                         const ModelTraits& model,
                         const std::string& file_name)
    : column_(schema.target), column_name_(schema.describe(schema.target)), loss_(model.loss) {
  const std::vector<std::string>& names = table.columns[column_].names;
  const bool numbers =
      loss_ == Loss::kMeanSquaredError || (loss_ == Loss::kBinaryCrossEntropy &&
                                           std::all_of(names.begin(), names.end(), is_probability));
  if (!numbers) {
    classes_ = names;
    sort_names(&classes_);
  }
  if (loss_ == Loss::kBinaryCrossEntropy && !numbers && classes_.size() != 2)
    throw DataError(
        "{}: {} has {} different values ({}); binary cross-entropy needs two, or numbers in [0, 1]",
        file_name,
        column_name_,
        classes_.size(),
        list(classes_));
  const int64_t outputs = is_label() ? static_cast<int64_t>(classes_.size()) : 1;
  const bool fits =
      model.outputs == 0 || (is_label() ? outputs <= model.outputs : outputs == model.outputs);
  if (!fits)
    throw DataError("{}: {} has {} {}; {}",
                    file_name,
                    column_name_,
                    outputs,
                    is_label() ? "classes" : "target",
                    model.describe_outputs());
}

double TableTarget::decode_name(const std::string& name) const {
  if (classes_.empty()) {
    double number = kNotAllowed;
    return is_probability(name) && parse_number(name, &number) ? number : kNotAllowed;
  }
  const auto index_of = [this](std::string_view wanted) {
    return std::find(classes_.begin(), classes_.end(), wanted) - classes_.begin();
  };
  auto index = index_of(name);
  const auto unknown = static_cast<decltype(index)>(classes_.size());
  if (index == unknown && name.ends_with('.'))
    index = index_of(std::string_view(name).substr(0, name.size() - 1));
  return index == unknown ? kNotAllowed : static_cast<double>(index);
}

std::vector<double> TableTarget::decode(const TableColumns& table) const {
  const TableColumn& column = table.columns[column_];
  if (loss_ == Loss::kMeanSquaredError) return column.numbers;
  std::vector<double> of_name;
  for (const std::string& name : column.names) of_name.push_back(decode_name(name));
  std::vector<double> targets;
  targets.reserve(column.ids.size());
  for (const int32_t id : column.ids) targets.push_back(of_name[id]);
  return targets;
}

std::string TableTarget::complaint(const TableColumns& table, int64_t row) const {
  const TableColumn& column = table.columns[column_];
  return fmt::format("{}: '{}' is not {}",
                     column_name_,
                     column.names[column.ids[row]],
                     classes_.empty() ? "a number in [0, 1]" : "one of " + list(classes_));
}

}  // namespace lockstep
