// Catches: a line of metrics.jsonl that is read wrongly or twice, a line that is read before it is
// complete, values of a resumed run that stand beside those that it has cut off, and a damaged line
// that ends the reading.
#include "launcher/run/metrics_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/reference/temporary_folder.h"

namespace lockstep::launcher {
namespace {

void append(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::app) << text;
}

TEST(MetricsLine, NumbersTextsAndNull) {
  const auto line = parse_metrics_line(
      R"({"step": 7, "loss": null, "lr": 1e-3, "slowest_host": "node1", "nonfinite": true})");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->step, 7);
  ASSERT_EQ(line->numbers.size(), 4U);
  EXPECT_TRUE(std::isnan(line->numbers[1].second));
  EXPECT_EQ(line->numbers[2].second, 1e-3);
  EXPECT_EQ(line->numbers[3].second, 1);
  ASSERT_EQ(line->texts.size(), 1U);
  EXPECT_EQ(line->texts[0].second, "node1");
}

TEST(MetricsLine, DamagedOnesAreNothing) {
  for (const char* text : {"",
                           "{",
                           "{}",
                           R"({"loss": 1})",
                           R"({"step": 1)",
                           R"({"step": 1} )",
                           R"({"step": 1, })",
                           R"({"step": x})",
                           R"({"step": 1, "a": [1]})",
                           R"({"step": 1, "a": "\"})",
                           R"({"step": -1})"})
    EXPECT_FALSE(parse_metrics_line(text)) << text;
}

TEST(MetricsFile, ReadsWhatIsAppendedAndNoHalfLine) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "metrics.jsonl";
  MetricsFile file(path);
  EXPECT_FALSE(file.update());
  EXPECT_EQ(file.step(), 0);
  append(path, "{\"step\": 1, \"loss\": 2.5}\n{\"step\": 2, \"loss\": 2.25, \"eval_lo");
  EXPECT_TRUE(file.update());
  EXPECT_EQ(file.step(), 1);
  EXPECT_FALSE(file.update());
  append(path, "ss\": 3, \"weights_hash\": \"00ff\"}\nnot a line\n{\"step\": 3, \"loss\": 2}\n");
  EXPECT_TRUE(file.update());
  EXPECT_EQ(file.lines(), 3);
  EXPECT_EQ(file.damaged_lines(), 1);
  EXPECT_EQ(file.of("loss").steps, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(file.of("loss").values, (std::vector<double>{2.5, 2.25, 2}));
  EXPECT_EQ(file.of("eval_loss").steps, (std::vector<int64_t>{2}));
  EXPECT_EQ(file.newest("loss"), 2);
  EXPECT_FALSE(file.newest("eval_loss"));
  EXPECT_EQ(file.newest_text("weights_hash"), "");
  EXPECT_TRUE(file.of("accuracy").empty());
  EXPECT_EQ(file.fields(), (std::vector<std::string>{"eval_loss", "loss", "step"}));
}

// The resumed run's file may be longer than before when it is read next.
TEST(MetricsFile, AResumedRunReplacesWhatItCutOff) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "metrics.jsonl";
  append(path, "{\"step\": 1, \"loss\": 4}\n{\"step\": 2, \"loss\": 3}\n");
  MetricsFile file(path);
  file.update();
  std::filesystem::resize_file(path, std::string("{\"step\": 1, \"loss\": 4}\n").size());
  append(path, "{\"step\": 2, \"loss\": 9}\n{\"step\": 3, \"loss\": 8}\n");
  EXPECT_TRUE(file.update());
  EXPECT_EQ(file.of("loss").values, (std::vector<double>{4, 9, 8}));
  std::filesystem::remove(path);
  EXPECT_TRUE(file.update());
  EXPECT_EQ(file.lines(), 0);
}

}  // namespace
}  // namespace lockstep::launcher
