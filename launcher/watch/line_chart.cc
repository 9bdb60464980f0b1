#include "launcher/watch/line_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace lockstep::watch {
namespace {

using Dots = std::vector<std::optional<double>>;

// The means of `count` neighbouring parts of the values; if there are fewer values, each is several
// parts.
Dots parts_of(const std::vector<double>& values, size_t count) {
  Dots means(values.empty() ? 0 : count);
  for (size_t part = 0; part < means.size(); ++part) {
    double sum = 0;
    int64_t finite = 0;
    const size_t begin = part * values.size() / count;
    for (size_t i = begin; i < std::max(begin + 1, (part + 1) * values.size() / count); ++i) {
      if (!std::isfinite(values[i])) continue;
      sum += values[i];
      ++finite;
    }
    if (finite > 0) means[part] = sum / static_cast<double>(finite);
  }
  return means;
}

// Characters with dots, which are set by column from the left and row from the top.
class Canvas {
 public:
  explicit Canvas(const ChartSize& size)
      : size_(size), cells_(static_cast<size_t>(size.columns * size.rows)) {}

  int across() const { return size_.utf8 ? 2 : 1; }  // dots of a character
  int down() const { return size_.utf8 ? 4 : 1; }
  int width() const { return across() * size_.columns; }
  int height() const { return down() * size_.rows; }

  void set(int x, int y) {
    // The bits of Unicode's Braille patterns, by column and row.
    constexpr uint8_t kBits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    const int cell = y / down() * size_.columns + x / across();
    cells_[static_cast<size_t>(cell)] |= kBits[x % across()][y % down()];
  }

  std::vector<std::string> lines() const {
    std::vector<std::string> lines(static_cast<size_t>(size_.rows));
    for (size_t i = 0; i < cells_.size(); ++i)
      lines[i / static_cast<size_t>(size_.columns)] += text_of(cells_[i]);
    return lines;
  }

 private:
  std::string text_of(uint8_t dots) const {
    if (dots == 0) return " ";
    if (!size_.utf8) return "*";
    // U+2800 and the dots, in UTF-8.
    return {'\xe2', static_cast<char>(0xa0 | dots >> 6), static_cast<char>(0x80 | (dots & 0x3f))};
  }

  ChartSize size_;
  std::vector<uint8_t> cells_;
};

}  // namespace

LineChart line_chart(const std::vector<double>& values, const ChartSize& size) {
  Canvas canvas(size);
  const Dots dots = parts_of(values, static_cast<size_t>(canvas.width()));
  double low = INFINITY, high = -INFINITY;
  for (const auto& dot : dots) {
    if (!dot) continue;
    low = std::min(low, *dot);
    high = std::max(high, *dot);
  }
  int before = -1;  // the row of the dot to the left; negative: a gap
  for (int x = 0; x < static_cast<int>(dots.size()); ++x) {
    const std::optional<double>& dot = dots[static_cast<size_t>(x)];
    if (!dot) {
      before = -1;
      continue;
    }
    const double height = high > low ? (*dot - low) / (high - low) : 0;
    const int y = canvas.height() - 1 -
                  static_cast<int>(std::lround(height * static_cast<double>(canvas.height() - 1)));
    canvas.set(x, y);
    const int from = before < 0 || !size.utf8 ? y : before;
    for (int row = y; row != from; row += from > y ? 1 : -1) canvas.set(x, row);
    before = y;
  }
  return {canvas.lines(), low, high};
}

}  // namespace lockstep::watch
