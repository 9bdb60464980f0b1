#include "launcher/run/task_report_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/config/task.h"

namespace lockstep::launcher {
namespace {

constexpr size_t kMatrixClasses = 20;  // of more, the terminal gets pairs
constexpr size_t kPairs = 20;
constexpr size_t kMaxLineColumns = 100;  // of a matrix whose columns have names
constexpr size_t kMeanNames = sizeof("weighted mean") - 1;

// Without what would break the columns.
std::string for_terminal(std::string name) {
  std::ranges::replace_if(
      name, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return name;
}

std::string score_row(const std::string& name, size_t width, const metrics::ClassScores& scores) {
  return fmt::format("{:<{}}  {:>9.4f}  {:>6.4f}  {:>6.4f}  {:>7}\n",
                     name,
                     width,
                     scores.precision,
                     scores.recall,
                     scores.f1,
                     scores.support);
}

class ClassText {
 public:
  ClassText(const metrics::Confusion& confusion, const std::vector<std::string>& names)
      : confusion_(confusion), names_(names), classes_(confusion.classes()) {
    for (const int32_t of : classes_) width_ = std::max(width_, name_of(of).size());
  }

  std::string text() const {
    std::string text = fmt::format("{:<{}}  precision  recall      F1  support\n", "class", width_);
    const std::vector<metrics::ClassScores> scores = confusion_.scores();
    for (size_t i = 0; i < classes_.size(); ++i) text += row(name_of(classes_[i]), scores[i]);
    text += row("mean", confusion_.macro_mean());
    text += row("weighted mean", confusion_.weighted_mean());
    return text + "\n" + (classes_.size() > kMatrixClasses ? pairs() : matrix());
  }

 private:
  std::string name_of(int32_t number) const {
    if (static_cast<size_t>(number) >= names_.size()) return std::to_string(number);
    return for_terminal(names_[static_cast<size_t>(number)]);
  }

  std::string row(const std::string& name, const metrics::ClassScores& scores) const {
    return score_row(name, width_, scores);
  }

  // At the top are the classes' names or, if a line would be too long, numbers of the rows.
  std::string matrix() const {
    size_t cell = 0, name = 0;
    for (const auto& each : confusion_.cells())
      cell = std::max(cell, std::to_string(each.count).size());
    for (const int32_t of : classes_) name = std::max(name, name_of(of).size());
    const size_t named = std::max(cell, name);
    const bool by_name =
        names_.empty() || width_ + classes_.size() * (named + 2) <= kMaxLineColumns;
    const size_t column = by_name ? named : std::max<size_t>(cell, 2);
    std::string text = "confusion matrix: a row for each class, a column for each prediction\n";
    text += fmt::format("{:<{}}{}", "class", width_, by_name ? "" : "  no.");
    for (size_t i = 0; i < classes_.size(); ++i)
      text +=
          fmt::format("  {:>{}}", by_name ? name_of(classes_[i]) : std::to_string(i + 1), column);
    for (size_t i = 0; i < classes_.size(); ++i) {
      text += fmt::format("\n{:<{}}", name_of(classes_[i]), width_);
      if (!by_name) text += fmt::format("  {:>3}", i + 1);
      for (const int32_t predicted : classes_)
        text += fmt::format("  {:>{}}", confusion_.count(classes_[i], predicted), column);
    }
    return text + "\n";
  }

  std::string pairs() const {
    std::string text =
        fmt::format("most confused, of {} classes: class, prediction, samples\n", classes_.size());
    for (const auto& cell : confusion_.most_confused(kPairs))
      text += fmt::format("{:<{}}  {:<{}}  {}\n",
                          name_of(cell.target),
                          width_,
                          name_of(cell.predicted),
                          width_,
                          cell.count);
    return text;
  }

  const metrics::Confusion& confusion_;
  const std::vector<std::string>& names_;
  std::vector<int32_t> classes_;
  size_t width_ = kMeanNames;
};

std::string label_text(const std::vector<metrics::ClassScores>& labels,
                       const std::vector<std::string>& names) {
  size_t width = sizeof("label") - 1;
  std::vector<std::string> shown;
  for (size_t i = 0; i < labels.size(); ++i) {
    shown.push_back(i < names.size() ? for_terminal(names[i]) : std::to_string(i));
    width = std::max(width, shown.back().size());
  }
  std::string text = fmt::format("{:<{}}  precision  recall      F1  support\n", "label", width);
  for (size_t i = 0; i < labels.size(); ++i) text += score_row(shown[i], width, labels[i]);
  return text;
}

Json name_of(int32_t number, const std::vector<std::string>& names) {
  if (static_cast<size_t>(number) < names.size()) return names[static_cast<size_t>(number)];
  return int64_t{number};
}

Json to_json(const metrics::ClassScores& scores) {
  return Json::object({{"precision", scores.precision},
                       {"recall", scores.recall},
                       {"f1", scores.f1},
                       {"support", scores.support}});
}

}  // namespace

void check_report(bool report, const config::ModelTraits& model) {
  if (report && !config::predicts_classes_or_values(model))
    throw ConfigError(
        "--report: allowed only with models that predict a class or values; the model is {}",
        model.section);
}

std::string to_text(const metrics::TaskReport& report,
                    const std::vector<std::string>& class_names) {
  if (report.classes) return ClassText(*report.classes, class_names).text();
  if (!report.labels.empty()) return label_text(report.labels, class_names);
  std::string text = "output  mean absolute error  root mean squared error  R squared\n";
  for (size_t i = 0; i < report.values.size(); ++i)
    text += fmt::format("{:>6}  {:>19.6g}  {:>23.6g}  {:>9.4f}\n",
                        i,
                        report.values[i].mean_absolute_error,
                        report.values[i].root_mean_squared_error,
                        report.values[i].r_squared);
  return text;
}

Json to_json(const metrics::TaskReport& report, const std::vector<std::string>& class_names) {
  Json json = Json::object();
  if (report.classes) {
    const metrics::Confusion& confusion = *report.classes;
    const std::vector<int32_t> classes = confusion.classes();
    const std::vector<metrics::ClassScores> scores = confusion.scores();
    Json rows = Json::array(), cells = Json::array();
    for (size_t i = 0; i < classes.size(); ++i) {
      Json row = Json::object({{"class", name_of(classes[i], class_names)}});
      const Json figures = to_json(scores[i]);
      for (const std::string& name : figures.names()) row[name] = figures[name];
      rows.push_back(row);
    }
    for (const auto& cell : confusion.cells())
      cells.push_back(Json::object({{"label", name_of(cell.target, class_names)},
                                    {"predicted", name_of(cell.predicted, class_names)},
                                    {"count", cell.count}}));
    json["classes"] = rows;
    json["mean"] = to_json(confusion.macro_mean());
    json["weighted_mean"] = to_json(confusion.weighted_mean());
    json["confusion"] = cells;
    return json;
  }
  if (!report.labels.empty()) {
    Json rows = Json::array();
    for (size_t i = 0; i < report.labels.size(); ++i) {
      Json row = Json::object({{"label", name_of(static_cast<int32_t>(i), class_names)}});
      const Json figures = to_json(report.labels[i]);
      for (const std::string& name : figures.names()) row[name] = figures[name];
      rows.push_back(row);
    }
    json["labels"] = rows;
    return json;
  }
  Json outputs = Json::array();
  for (const metrics::ValueScores& scores : report.values)
    outputs.push_back(Json::object({{"mean_absolute_error", scores.mean_absolute_error},
                                    {"root_mean_squared_error", scores.root_mean_squared_error},
                                    {"r_squared", scores.r_squared},
                                    {"pearson", scores.pearson},
                                    {"spearman", scores.spearman}}));
  json["outputs"] = outputs;
  return json;
}

}  // namespace lockstep::launcher
