// Catches: a name that breaks the page, a loss that is taken for equal, waits that are counted
// twice or for the wrong rank, a mean over values that are not finite.
#include <gtest/gtest.h>

#include <cmath>

#include "launcher/report/charts.h"
#include "launcher/report/comparison.h"
#include "launcher/report/page.h"
#include "launcher/report/run_facts.h"
#include "launcher/report/timeline_summary.h"

namespace lockstep::report {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ReportPage, EscapesEverything) {
  const std::string bad = "<b>&\"", good = "&lt;b&gt;&amp;&quot;";
  Page page(bad, bad);
  page.section(bad);
  page.paragraph(bad);
  page.tiles({{bad, bad}});
  page.table({bad}, {{bad}});
  page.table({"no rows"}, {});
  page.image("<svg/>", bad);
  page.details(bad, bad);
  const std::string html = page.html();
  EXPECT_FALSE(has(html, bad));
  EXPECT_FALSE(has(html, "no rows"));
  size_t count = 0;
  for (size_t at = 0; (at = html.find(good, at)) != std::string::npos; ++at) ++count;
  EXPECT_EQ(count, 12U);
  EXPECT_TRUE(has(html, "data:image/svg+xml;base64,PHN2Zy8+\""));
  EXPECT_EQ(html.find("http"), html.find("http://www.w3.org/1999/xhtml"));
}

TEST(ReportComparison, FindsTheFirstDifferentLoss) {
  const launcher::MetricSeries a{{1, 2, 3, 4}, {4, 3, NAN, 1}};
  EXPECT_EQ(to_text(compare_losses(a, a)),
            "The same loss, bit for bit, at all 4 steps that both runs have.");
  const LossComparison later = compare_losses(a, {{2, 3, 4, 5}, {3, NAN, std::nextafter(1, 2), 1}});
  EXPECT_EQ(later.compared, 3);
  EXPECT_EQ(later.last_equal, 3);
  EXPECT_EQ(later.first_difference, 4);
  EXPECT_EQ(to_text(compare_losses(a, {{1, 2}, {5, 3}})),
            "The losses differ from the first common step on, step 1.");
  EXPECT_EQ(to_text(compare_losses(a, {{9}, {1}})), "No step is in both runs' metrics.jsonl.");
}

TEST(ReportTimeline, SharesAndWhoCameLast) {
  const TimelineSummary summary = summarize_timeline(R"([
{"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":"rank 1 on n"}},
{"name":"step 1","cat":"step","ph":"X","pid":1,"tid":0,"ts":0.000,"dur":10000.000},
{"name":"forward and backward","cat":"phase","ph":"X","pid":1,"tid":0,"ts":0.000,"dur":6000.000},
{"name":"linear","cat":"op","ph":"X","pid":1,"tid":0,"ts":0.000,"dur":1000.000},
{"name":"bucket 0, 1 MiB","cat":"exchange","ph":"X","pid":1,"tid":2000,"ts":1000.000,"dur":2000.000,"args":{"arrived_ms":0.5,"last":1,"behind_ms":0.5}},
{"name":"bucket 1, 1 MiB","cat":"exchange","ph":"X","pid":1,"tid":2001,"ts":2000.000,"dur":2000.000,"args":{"arrived_ms":0,"last":0,"behind_ms":0.5}},
{"name":"wait for gradients of bucket 0","cat":"wait","ph":"X","pid":1,"tid":0,"ts":5000.000,"dur":500.000},
damaged,
{"name":"wait for all ranks","cat":"wait","ph":"X","pid":1,"tid":0,"ts":7000.000,"dur":1000.000}
])");
  ASSERT_EQ(summary.size(), 1U);
  const RankTimeline& rank = summary.at(1);
  EXPECT_EQ(rank.name, "rank 1 on n");
  EXPECT_EQ(rank.steps, 1);
  EXPECT_DOUBLE_EQ(rank.step_ms, 10);
  EXPECT_DOUBLE_EQ(rank.passes_ms, 6);
  EXPECT_DOUBLE_EQ(rank.pass_waits_ms, 0.5);
  EXPECT_DOUBLE_EQ(rank.waits_ms, 1.5);
  EXPECT_DOUBLE_EQ(rank.transfer_ms, 3);
  EXPECT_EQ(rank.last, 1);
  EXPECT_DOUBLE_EQ(rank.behind_ms, 0.5);
}

TEST(ReportCharts, MeansLeaveOutWhatIsNotFinite) {
  launcher::MetricSeries series;
  for (int i = 0; i < 9; ++i) {
    series.steps.push_back(i);
    series.values.push_back(i < 6 ? i : NAN);
  }
  series.values[1] = INFINITY;
  const std::vector<plots::Point> means = means_of(series, 3);
  ASSERT_EQ(means.size(), 3U);
  EXPECT_DOUBLE_EQ(means[0].y, 1);
  EXPECT_DOUBLE_EQ(means[1].x, 4);
  EXPECT_DOUBLE_EQ(means[1].y, 4);
  EXPECT_TRUE(std::isnan(means[2].y));
  EXPECT_TRUE(means_of(series, 4).empty());
  // 2, 6 and 3 samples a second take 1 s for one sample each.
  const auto rates = means_of({{1, 2, 3, 4, 5, 6}, {2, 6, 3, 3, 3, 3}}, 2, true);
  ASSERT_EQ(rates.size(), 2U);
  EXPECT_DOUBLE_EQ(rates[0].y, 3 / (1 / 2. + 1 / 6. + 1 / 3.));
}

TEST(ReportFacts, Texts) {
  EXPECT_EQ(plain_text(Json::parse(R"(["a", "b", "a"])")), "a (2 x), b");
  EXPECT_EQ(plain_text(Json::parse(R"({"mpi": "Open MPI", "cpu": 3})")), "mpi: Open MPI; cpu: 3");
  EXPECT_EQ(text_of(Json(), "absent"), "");
  EXPECT_EQ(duration_text(3.21), "3.21 s");
  EXPECT_EQ(duration_text(61), "1 min 1 s");
  EXPECT_EQ(duration_text(7320), "2 h 2 min");
  EXPECT_EQ(duration_text(200'000), "2 d 7 h");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  // The first quarter does not count.
  EXPECT_EQ(usual_value({{1, 2, 3, 4}, {100, 3, NAN, 3}}), 3);
  EXPECT_TRUE(std::isnan(usual_value({})));
}

}  // namespace
}  // namespace lockstep::report
