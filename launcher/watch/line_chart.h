#pragma once
// A curve drawn with characters.

#include <string>
#include <vector>

namespace lockstep::watch {

struct ChartSize {
  int columns, rows;
  bool utf8 = true;  // otherwise with '*'
};

struct LineChart {
  std::vector<std::string> lines;
  double low = 0, high = 0;  // of the dots
};

// Draws values at equal distances from left to right, from their lowest at the bottom to their
// highest at the top. If there are more values than dots, a dot is the mean of its neighbours. With
// UTF-8, a character has 2 x 4 dots of Braille, and neighbours are connected. Values that are not
// finite are gaps. It has `rows` lines of `columns` characters.
LineChart line_chart(const std::vector<double>& values, const ChartSize& size);

}  // namespace lockstep::watch
