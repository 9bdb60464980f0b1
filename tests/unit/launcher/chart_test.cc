// Catches: a point that is drawn in another column or not at all, a run that does not fit and looks
// as if it did, an error bar that is not the range, an axis that is not marked as predicted.
#include "launcher/forecast/chart.h"

#include <gtest/gtest.h>

namespace lockstep::forecast {
namespace {

Chart sweep() {
  return {"8 o'clock",
          "note",
          true,
          {{"predicted s a step", true, {{"1", {1, 3}}, {"8", {0.5, 1}}}},
           {"predicted efficiency, %", false, {{"1", {100, 100}}, {"8", {33, 33}}}}}};
}

TEST(Chart, LinesOverRanks) {
  const plots::Picture picture = picture_of(sweep());
  ASSERT_EQ(picture.panels.size(), 2U);
  const plots::Panel& panel = picture.panels[0];
  EXPECT_EQ(panel.kind, plots::PanelKind::kLines);
  EXPECT_EQ(panel.y.label, "predicted s a step");
  EXPECT_TRUE(panel.x.logarithmic && panel.y.logarithmic);
  EXPECT_EQ(panel.x.ticks, (std::vector<double>{1, 8}));
  EXPECT_FALSE(picture.panels[1].y.logarithmic);
  EXPECT_EQ(plots::csv_of(picture),
            "panel,series,x,y,low,high\n"
            "predicted s a step,,1,2,1,3\n"
            "predicted s a step,,8,0.75,0.5,1\n"
            "\"predicted efficiency, %\",,1,100,100,100\n"
            "\"predicted efficiency, %\",,8,33,33,33\n");
  const std::string svg = plots::svg_of(picture);
  EXPECT_NE(svg.find("8 o&#39;clock"), std::string::npos);
  EXPECT_EQ(svg.find("does not fit"), std::string::npos);
}

TEST(Chart, BarsForHardwareAndRingsForWhatDoesNotFit) {
  Chart chart = sweep();
  chart.over_ranks = false;
  chart.panels[0].points[1] = {"8 x \"own\"", {2, 4}, false};
  const plots::Picture picture = picture_of(chart);
  EXPECT_EQ(picture.panels[0].kind, plots::PanelKind::kBars);
  EXPECT_EQ(picture.panels[0].categories, (std::vector<std::string>{"1", "8 x \"own\""}));
  EXPECT_FALSE(picture.panels[0].series[0].points[0].ringed);
  EXPECT_TRUE(picture.panels[0].series[0].points[1].ringed);
  EXPECT_NE(plots::csv_of(picture).find("predicted s a step,,\"8 x \"\"own\"\"\",3,2,4\n"),
            std::string::npos);
  const std::string svg = plots::svg_of(picture);
  EXPECT_NE(svg.find("does not fit"), std::string::npos);
  EXPECT_NE(svg.find("8 x &quot;own&quot;"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::forecast
