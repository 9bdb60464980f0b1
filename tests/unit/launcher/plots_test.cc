// Catches: ticks beside the round numbers or outside of the axis, labels that do not tell
// neighbours apart, a peak that thinning loses, texts that break the picture, labels that lie over
// each other, a line that goes on over missing values.
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "launcher/plots/picture.h"
#include "launcher/plots/svg.h"
#include "launcher/plots/ticks.h"

namespace lockstep::plots {
namespace {

std::string labels(const std::vector<Tick>& ticks) {
  std::string text;
  for (const Tick& tick : ticks) text += tick.label + " ";
  return text;
}

TEST(Ticks, NumbersAreShort) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(0.25), "0.25");
  EXPECT_EQ(number_text(-1.5), "-1.5");
  EXPECT_EQ(number_text(1234.5678), "1235");
  EXPECT_EQ(number_text(9999), "9999");
  EXPECT_EQ(number_text(20000), "20k");
  EXPECT_EQ(number_text(1.5e6), "1.5M");
  EXPECT_EQ(number_text(2.5e9), "2.5G");
  EXPECT_EQ(number_text(3.2e-5), "3.2e-5");
  EXPECT_EQ(number_text(0.0008), "0.0008");
  EXPECT_EQ(number_text(1e20), "1e20");
  EXPECT_EQ(number_text(NAN), "not finite");
}

TEST(Ticks, Linear) {
  EXPECT_EQ(labels(linear_ticks(0, 1, 6)), "0 0.2 0.4 0.6 0.8 1 ");
  EXPECT_EQ(labels(linear_ticks(0.97, 2.03, 6)), "1 1.2 1.4 1.6 1.8 2 ");
  EXPECT_EQ(labels(linear_ticks(-0.5, 1, 6)), "-0.5 0 0.5 1 ");
  EXPECT_EQ(labels(linear_ticks(1, 100000, 9)), "20k 40k 60k 80k 100k ");
  EXPECT_EQ(labels(linear_ticks(1000, 1001, 6)), "1000 1000.2 1000.4 1000.6 1000.8 1001 ");
  EXPECT_EQ(labels(linear_ticks(0, 3e-5, 4)), "0 1e-5 2e-5 3e-5 ");
}

TEST(Ticks, Logarithmic) {
  EXPECT_EQ(labels(log_ticks(0.5, 2000, 6)), "1 10 100 1000 ");
  EXPECT_EQ(labels(log_ticks(1, 1e12, 6)), "1 1000 1M 1G 1T ");
  EXPECT_EQ(labels(log_ticks(20, 300, 6)), "20 50 100 200 ");
  EXPECT_EQ(labels(log_ticks(21, 29, 5)), "22 24 26 28 ");
}

TEST(Ticks, Scales) {
  const Scale linear = rounded_scale(0.97, 2.03, 6);
  EXPECT_DOUBLE_EQ(linear.low, 0.5);
  EXPECT_DOUBLE_EQ(linear.high, 2.5);
  EXPECT_DOUBLE_EQ(linear.place_of(1.5), 0.5);
  const Scale constant = rounded_scale(7, 7, 6);
  EXPECT_LT(constant.low, 7);
  EXPECT_GT(constant.high, 7);
  const Scale logarithmic{1, 100, true};
  EXPECT_DOUBLE_EQ(logarithmic.place_of(10), 0.5);
}

TEST(Svg, EscapesTexts) {
  EXPECT_EQ(escaped("<a & \"b\" 'c'>\x01"),
            "&lt;a &amp; &quot;b&quot; &#39;c&#39;&gt;\xef\xbf\xbd");
  EXPECT_EQ(escaped("\xff"), "\xef\xbf\xbd");
  EXPECT_EQ(escaped("größe"), "größe");
  EXPECT_EQ(text_width("", 10), 0);
  EXPECT_GT(text_width("wide", 10), text_width("lil", 10));
}

TEST(Picture, ThinningKeepsEveryPeak) {
  std::vector<Point> points;
  for (int i = 0; i < 100'000; ++i) points.push_back({.x = double(i), .y = 1});
  points[77'777].y = 9;
  points[12'345].y = -9;
  points[500].y = kNone;
  const std::vector<Point> kept = thinned(points, 100);
  EXPECT_LE(kept.size(), 400U);
  const auto has = [&](double x, double y) {
    return std::ranges::any_of(kept,
                               [&](const Point& point) { return point.x == x && point.y == y; });
  };
  EXPECT_TRUE(has(77'777, 9));
  EXPECT_TRUE(has(12'345, -9));
  EXPECT_TRUE(has(0, 1));
  EXPECT_TRUE(has(99'999, 1));
  for (size_t i = 1; i < kept.size(); ++i) EXPECT_LT(kept[i - 1].x, kept[i].x);
  EXPECT_EQ(thinned({{.x = 1, .y = 2}}, 100).size(), 1U);
}

Picture lines(std::vector<Point> points) {
  Panel panel;
  panel.x.label = "ranks";
  panel.series = {{.name = "a,b", .points = std::move(points)}};
  return {.title = "A <title>", .note = "host & date", .panels = {panel}};
}

TEST(Picture, LinesBreakAtMissingValues) {
  const std::string svg = svg_of(lines({{.x = 1, .y = 1},
                                        {.x = 2, .y = 2},
                                        {.x = 3, .y = kNone},
                                        {.x = 4, .y = 1},
                                        {.x = 5, .y = 1}}));
  const std::regex broken("<path d=\"M[^L\"]+L[^M\"]+M[^L\"]+L[^\"]+\"");
  EXPECT_TRUE(std::regex_search(svg, broken)) << svg;
  EXPECT_NE(svg.find("A &lt;title&gt;"), std::string::npos);
  EXPECT_NE(svg.find("host &amp; date"), std::string::npos);
  EXPECT_NE(svg.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_EQ(svg_of(lines({{.x = 1, .y = 1}}), /*in_page=*/true).find("<style>"), std::string::npos);
}

// Places of texts, from the SVG.
TEST(Picture, LabelsOfPointsDoNotMeet) {
  std::vector<Point> points;
  for (int i = 0; i < 40; ++i)
    points.push_back({.x = double(i), .y = double(i % 2), .label = "100.5"});
  const std::string svg = svg_of(lines(points));
  const std::regex text("<text x=\"([0-9.]+)\" y=\"([0-9.]+)\"[^>]*class=\"v\">100.5<");
  std::vector<std::pair<double, double>> places;
  for (std::sregex_iterator it(svg.begin(), svg.end(), text), end; it != end; ++it)
    places.emplace_back(std::stod((*it)[1]), std::stod((*it)[2]));
  EXPECT_GT(places.size(), 10U);
  const double width = text_width("100.5", 11);
  for (size_t i = 0; i < places.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      EXPECT_TRUE(std::abs(places[i].first - places[k].first) >= width - 0.2 ||
                  std::abs(places[i].second - places[k].second) >= 11.8)
          << i << " " << k;
}

TEST(Picture, StacksAddUpAndGainsAreBelowZero) {
  Panel panel{.kind = PanelKind::kStackedBars};
  panel.categories = {"one"};
  panel.series = {{.name = "a", .points = {{.x = 0, .y = 3}}},
                  {.name = "b", .points = {{.x = 0, .y = 1}}},
                  {.name = "c", .points = {{.x = 0, .y = -1}}}};
  const std::string svg = svg_of({.title = "t", .panels = {panel}}, true);
  const std::regex bar(
      "<rect x=\"[0-9.]+\" y=\"([0-9.]+)\" width=\"[0-9.]+\" height=\"([0-9.]+)\" "
      "class=\"f0\"><title>one, ([abc])");
  std::map<std::string, std::pair<double, double>> bars;  // upper edge, height
  for (std::sregex_iterator it(svg.begin(), svg.end(), bar), end; it != end; ++it)
    bars[(*it)[3]] = {std::stod((*it)[1]), std::stod((*it)[2])};
  ASSERT_EQ(bars.size(), 3U) << svg;
  EXPECT_NEAR(bars["a"].second, 3 * bars["b"].second, 0.3);
  EXPECT_NEAR(bars["b"].first + bars["b"].second, bars["a"].first, 0.2);
  EXPECT_NEAR(bars["a"].first + bars["a"].second, bars["c"].first, 0.2);
}

TEST(Picture, WritesTheFiguresAsCsv) {
  Picture picture = lines({{.x = 1, .y = 0.1, .low = 0, .high = 0.25}, {.x = 2, .y = kNone}});
  EXPECT_EQ(csv_of(picture), "panel,series,x,y,low,high\n,\"a,b\",1,0.1,0,0.25\n,\"a,b\",2,,,\n");
}

}  // namespace
}  // namespace lockstep::plots
