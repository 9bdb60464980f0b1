// Catches: a report whose columns are not those of its rows, names that break its lines.
#include "launcher/run/task_report_text.h"

#include <gtest/gtest.h>

namespace lockstep::launcher {
namespace {

metrics::TaskReport report_of(const std::vector<std::pair<int32_t, int32_t>>& predictions) {
  metrics::TaskReport report;
  report.classes.emplace();
  for (const auto& [target, predicted] : predictions) report.classes->add(predicted, target);
  return report;
}

TEST(TaskReportText, OfNamedClasses) {
  const metrics::TaskReport report = report_of({{0, 0}, {0, 0}, {0, 1}, {1, 1}});
  EXPECT_EQ(to_text(report, {"no", "y\nes"}),
            "class          precision  recall      F1  support\n"
            "no                1.0000  0.6667  0.8000        3\n"
            "y?es              0.5000  1.0000  0.6667        1\n"
            "mean              0.7500  0.8333  0.7333        4\n"
            "weighted mean     0.8750  0.7500  0.7667        4\n"
            "\n"
            "confusion matrix: a row for each class, a column for each prediction\n"
            "class            no  y?es\n"
            "no                2     1\n"
            "y?es              0     1\n");
  const Json json = to_json(report, {"no", "yes"});
  EXPECT_EQ(json["confusion"].dump(),
            "[{\"label\":\"no\",\"predicted\":\"no\",\"count\":2},"
            "{\"label\":\"no\",\"predicted\":\"yes\",\"count\":1},"
            "{\"label\":\"yes\",\"predicted\":\"yes\",\"count\":1}]");
  EXPECT_EQ(json["classes"][0].dump(),
            "{\"class\":\"no\",\"precision\":1.0,\"recall\":0.6666666666666666,\"f1\":0.8,"
            "\"support\":3}");
}

TEST(TaskReportText, ColumnsOfLongNamesAreNumbered) {
  const std::string text =
      to_text(report_of({{0, 0}, {1, 0}}), {std::string(60, 'a'), std::string(60, 'b')});
  EXPECT_NE(text.find("  no.   1   2\n" + std::string(60, 'a') + "    1   1   0\n" +
                      std::string(60, 'b') + "    2   1   0\n"),
            std::string::npos)
      << text;
}

TEST(TaskReportText, ManyClassesHaveTheMostConfusedPairs) {
  std::vector<std::pair<int32_t, int32_t>> predictions = {{3, 20}, {3, 20}, {4, 5}};
  for (int32_t of = 0; of < 21; ++of) predictions.emplace_back(of, of);
  const std::string text = to_text(report_of(predictions), {});
  EXPECT_TRUE(
      text.ends_with("\nmost confused, of 21 classes: class, prediction, samples\n"
                     "3              20             2\n"
                     "4              5              1\n"))
      << text;
}

TEST(TaskReportText, OfValues) {
  metrics::TaskReport report;
  report.values.push_back({.mean_absolute_error = 0.5625,
                           .root_mean_squared_error = 0.625,
                           .r_squared = 0.9206,
                           .pearson = 1,
                           .spearman = 1});
  EXPECT_EQ(to_text(report, {}),
            "output  mean absolute error  root mean squared error  R squared\n"
            "     0               0.5625                    0.625     0.9206\n");
}

}  // namespace
}  // namespace lockstep::launcher
