// Catches: a point that is drawn in another column or not at all, a run that does not fit and looks
// as if it did, names that gnuplot would read as commands, an axis that is not marked as predicted.
#include "launcher/forecast/chart.h"

#include <gtest/gtest.h>

namespace lockstep::forecast {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Chart sweep() {
  return {"8 o'clock",
          true,
          {{"predicted s a step", true, {{"1", {1, 3}}, {"8", {0.5, 1}}}},
           {"predicted efficiency, %", false, {{"1", {100, 100}}, {"8", {33, 33}}}}}};
}

TEST(Chart, LinesOverRanks) {
  const std::string script = script_of(sweep(), "it's.svg");
  EXPECT_TRUE(has(script, "$panel1 << END\n1 \"1\" 2 1 3 NaN\n8 \"8\" 0.75 0.5 1 NaN\nEND\n"))
      << script;
  EXPECT_TRUE(has(script, "set terminal svg size 800,640"));
  EXPECT_TRUE(has(script, "set output 'it''s.svg'"));
  EXPECT_TRUE(has(script, "set multiplot layout 2,1 title '8 o''clock'"));
  EXPECT_TRUE(has(script, "set xtics (1,8)\nset xrange [1*0.9:8*1.1]"));
  EXPECT_TRUE(has(script, "set ylabel 'predicted s a step'\nset logscale y"));
  EXPECT_TRUE(has(script, "set ylabel 'predicted efficiency, %'\nunset logscale y"));
  EXPECT_FALSE(has(script, "does not fit"));
}

TEST(Chart, BarsForHardwareAndRingsForWhatDoesNotFit) {
  Chart chart = sweep();
  chart.over_ranks = false;
  chart.panels[0].points[1] = {"8 x \"own\"", {2, 4}, false};
  const std::string script = script_of(chart, "a.png");
  EXPECT_TRUE(has(script, "\n1 \"8 x 'own'\" 3 2 4 3\n")) << script;
  EXPECT_TRUE(
      has(script, "$panel1 using 1:6 with points pt 6 ps 2 lw 2 lc 'red' title 'does not fit'"));
  EXPECT_FALSE(has(script, "$panel2 using 1:6"));
  EXPECT_TRUE(has(script, "set terminal pngcairo"));
  EXPECT_FALSE(has(script, "logscale x"));
}

}  // namespace
}  // namespace lockstep::forecast
