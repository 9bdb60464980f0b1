#include "runtime/data/tables/table_target.h"

#include <algorithm>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/class_warnings.h"
#include "runtime/data/tables/csv.h"

namespace lockstep::data {
namespace {

constexpr size_t kNamesShown = 6;
constexpr double kNotAllowed = std::numeric_limits<double>::quiet_NaN();

bool is_probability(const std::string& name, const NumberFormat& format) {
  double number;
  return parse_number(name, format, &number) && number >= 0 && number <= 1;
}

// Sorts names as numbers, if all are numbers.
void sort_names(std::vector<std::string>* names, const NumberFormat& format) {
  double number;
  if (!std::ranges::all_of(*names,
                           [&](const auto& name) { return parse_number(name, format, &number); }))
    return;
  std::ranges::stable_sort(*names, [&](const std::string& a, const std::string& b) {
    double left = 0, right = 0;
    parse_number(a, format, &left);
    parse_number(b, format, &right);
    return left < right;
  });
}

std::string list(const std::vector<std::string>& names) {
  return named_first(names.size(), kNamesShown, [&](size_t i) { return "'" + names[i] + "'"; });
}

// The first class that differs from one before it as little as look_alike_note() says.
std::string look_alikes_note(const std::vector<std::string>& classes) {
  std::vector<std::string> before;
  for (const std::string& name : classes) {
    if (std::string note = look_alike_note(name, before); !note.empty()) return note;
    before.push_back(name);
  }
  return "";
}

}  // namespace

ColumnKind TableTarget::column_kind(config::TargetKind kind) {
  return kind == config::TargetKind::kValues ? ColumnKind::kNumeric : ColumnKind::kCategorical;
}

TableTarget::TableTarget(const TableSchema& schema,
                         size_t column,
                         const TableColumns& table,
                         const config::ModelTraits& model,
                         const std::string& file_name)
    : column_(column),
      column_name_(schema.describe(column)),
      numbers_(schema.numbers),
      kind_(model.target_kind()) {
  const std::vector<std::string>& names = table.columns[column_].names;
  const bool numbers =
      kind_ == config::TargetKind::kValues ||
      (kind_ == config::TargetKind::kYesNo &&
       std::ranges::all_of(names, [&](const auto& n) { return is_probability(n, numbers_); }));
  std::vector<int64_t> samples(names.size());
  for (const int32_t id : table.columns[column_].ids)
    if (id >= 0) ++samples[static_cast<size_t>(id)];
  for (size_t i = 0; i < names.size(); ++i) spellings_.add(names[i], samples[i]);
  spellings_.finish();
  if (!numbers) {
    classes_ = spellings_.names();
    sort_names(&classes_, numbers_);
    for (size_t i = 0; i < classes_.size(); ++i) index_[spellings_.key_of(classes_[i])] = i;
    if (look_like_values(classes_, classes_.size(), table.rows) && look_like_numbers(classes_))
      values_note_ = fmt::format("; if these are values to predict, set {}: MEAN_SQUARED_ERROR",
                                 model.field("loss"));
  }
  if (kind_ == config::TargetKind::kYesNo && !numbers && classes_.size() != 2)
    throw DataError(
        "{}: {} has {} ({}); binary cross-entropy needs two, or numbers in [0, 1]{}{}",
        file_name,
        column_name_,
        classes_.size() == 1 ? "one value" : fmt::format("{} different values", classes_.size()),
        list(classes_),
        look_alikes_note(classes_),
        values_note_.empty() && classes_.size() > 2
            ? fmt::format("; for more classes, set {}: SOFTMAX_CROSS_ENTROPY", model.field("loss"))
            : values_note_);
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
    const std::string text = is_probability(name, numbers_) ? name : spellings_.key_of(name);
    return is_probability(text, numbers_) && parse_number(text, numbers_, &number) ? number
                                                                                   : kNotAllowed;
  }
  auto found = index_.find(spellings_.key_of(name));
  if (found == index_.end() && name.ends_with('.'))
    found = index_.find(spellings_.key_of(std::string_view(name).substr(0, name.size() - 1)));
  return found == index_.end() ? kNotAllowed : static_cast<double>(found->second);
}

std::vector<double> TableTarget::decode(const TableColumns& table) const {
  const TableColumn& column = table.columns[column_];
  if (kind_ == config::TargetKind::kValues) return column.numbers;
  std::vector<double> of_name;
  for (const std::string& name : column.names) of_name.push_back(decode_name(name));
  std::vector<double> targets;
  targets.reserve(column.ids.size());
  for (const int32_t id : column.ids)
    targets.push_back(id < 0 ? kNotAllowed : of_name[static_cast<size_t>(id)]);
  return targets;
}

std::string TableTarget::complaint(const TableColumns& table, int64_t row) const {
  const TableColumn& column = table.columns[column_];
  const std::string& name = column.names[static_cast<size_t>(column.ids[row])];
  if (classes_.empty())
    return fmt::format("{}: '{}' is not a number in [0, 1]", column_name_, name);
  return fmt::format("{}: '{}' is not one of {}{}{}",
                     column_name_,
                     name,
                     list(classes_),
                     look_alike_note(name, classes_),
                     values_note_);
}

std::string TableTarget::describe_classes() const {
  if (classes_.empty()) return "";
  std::string text = fmt::format(", {} classes", classes_.size());
  if (spellings_.merges()) text += fmt::format(" in {} spellings", spellings_.spellings());
  return text;
}

}  // namespace lockstep::data
