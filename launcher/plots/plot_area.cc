#include "launcher/plots/plot_area.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace lockstep::plots {
namespace {

constexpr double kSmall = 11, kRight = 16;
constexpr int kMaxYTicks = 6, kMaxXTicks = 9;

struct Range {
  double low = INFINITY, high = -INFINITY;
  void add(double value, bool logarithmic) {
    if (!std::isfinite(value) || (logarithmic && value <= 0)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

// The sums of the positive and of the negative values of each category.
Range stacked_range(const Panel& panel) {
  Range range{0, 0};
  for (size_t i = 0; i < panel.categories.size(); ++i) {
    double above = 0, below = 0;
    for (const Series& series : panel.series) {
      const double value = i < series.points.size() ? series.points[i].y : 0;
      if (std::isfinite(value)) (value > 0 ? above : below) += value;
    }
    range.add(above, false);
    range.add(below, false);
  }
  return range;
}

Range range_of(const Panel& panel, bool of_x) {
  if (!of_x && panel.kind == PanelKind::kStackedBars) return stacked_range(panel);
  const Axis& axis = of_x ? panel.x : panel.y;
  Range range;
  for (const Series& series : panel.series)
    for (const Point& point : series.points) {
      if (of_x) {
        if (std::isfinite(point.y)) range.add(point.x, axis.logarithmic);
        continue;
      }
      for (const double value : {point.y, point.low, point.high})
        range.add(value, axis.logarithmic);
    }
  return range;
}

Scale y_scale(const Panel& panel) {
  const Axis& axis = panel.y;
  Range range = range_of(panel, false);
  if (range.empty()) range = axis.logarithmic ? Range{1, 10} : Range{0, 1};
  if (axis.low) range.low = std::min(range.low, *axis.low);
  if (axis.high) range.high = std::max(range.high, *axis.high);
  if (axis.logarithmic) {
    // Room for values above the highest point.
    const double room = std::max(1.12, std::pow(range.high / range.low, 0.06));
    return {range.low / room, range.high * room, true};
  }
  if (axis.from_zero || panel.kind != PanelKind::kLines) {
    range.low = std::min(range.low, 0.0);
    range.high = std::max(range.high, 0.0);
  }
  return rounded_scale(range.low, range.high, kMaxYTicks);
}

Scale x_scale(const Panel& panel) {
  if (panel.kind != PanelKind::kLines)
    return {-0.5, static_cast<double>(std::max<size_t>(1, panel.categories.size())) - 0.5};
  Range range = range_of(panel, true);
  if (range.empty()) range = {1, 2};
  if (panel.x.low) range.low = std::min(range.low, *panel.x.low);
  if (panel.x.high) range.high = std::max(range.high, *panel.x.high);
  if (panel.x.logarithmic) {
    const double room = std::max(1.15, std::pow(range.high / range.low, 0.04));
    return {range.low / room, range.high * room, true};
  }
  if (range.low == range.high) return {range.low - 1, range.high + 1};
  return {range.low, range.high};
}

std::vector<Tick> x_ticks(const Panel& panel, const Scale& scale) {
  std::vector<Tick> ticks;
  if (panel.kind != PanelKind::kLines) {
    for (const std::string& name : panel.categories)
      ticks.push_back({static_cast<double>(ticks.size()), name});
    return ticks;
  }
  if (panel.x.ticks.empty()) return ticks_of(scale, kMaxXTicks);
  for (const double at : panel.x.ticks) ticks.push_back({at, number_text(at, 12)});
  return ticks;
}

bool has_bar(const Point& point) { return std::isfinite(point.low) && std::isfinite(point.high); }

bool has_bars(const Series& series) { return std::ranges::any_of(series.points, has_bar); }

struct Box {
  double left, top, right, bottom;
  bool meets(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

}  // namespace

PlotArea::PlotArea(const Panel& panel, double width)
    : panel_(panel),
      x_(x_scale(panel)),
      y_(y_scale(panel)),
      x_ticks_(x_ticks(panel, x_)),
      y_ticks_(ticks_of(y_, kMaxYTicks)),
      right_(width - kRight) {
  double widest = 24;
  for (const Tick& tick : y_ticks_) widest = std::max(widest, text_width(tick.label, kSmall));
  left_ = 10 + widest + 8;
}

bool PlotArea::is_drawn(const Point& point) const {
  return std::isfinite(point.y) && !(y_.logarithmic && point.y <= 0) &&
         !(x_.logarithmic && point.x <= 0);
}

double PlotArea::draw(Svg& svg, double top, bool hovers) const {
  draw_y_axis(svg, top);
  const double bottom = draw_x_axis(svg, top);
  switch (panel_.kind) {
    case PanelKind::kLines: draw_lines(svg, top); break;
    case PanelKind::kBars: draw_bars(svg, top); break;
    case PanelKind::kStackedBars: draw_stacks(svg, top); break;
  }
  draw_marks(svg, top);
  draw_values(svg, top);
  if (hovers && panel_.kind == PanelKind::kLines) draw_hovers(svg, top);
  return bottom;
}

void PlotArea::draw_y_axis(Svg& svg, double top) const {
  for (const Tick& tick : y_ticks_) {
    const double y = y_of(tick.at, top);
    svg.line(left_, y, right_, y, tick.at == 0 ? "a" : "g");
    svg.text(left_ - 6, y + 4, tick.label, "m", kSmall, Anchor::kEnd);
  }
}

// Labels that would touch the one before are left out.
double PlotArea::draw_x_axis(Svg& svg, double top) const {
  const double bottom = top + panel_.height;
  svg.line(left_, bottom, right_, bottom, "a");
  double free_from = -INFINITY;
  for (const Tick& tick : x_ticks_) {
    const double x = x_of(tick.at);
    if (panel_.kind == PanelKind::kLines) svg.line(x, bottom, x, bottom + 4, "a");
    const double half = text_width(tick.label, kSmall) / 2;
    const double middle = std::clamp(x, half + 2, right_ + kRight - half - 2);
    if (middle - half < free_from) continue;
    svg.text(middle, bottom + 17, tick.label, "m", kSmall, Anchor::kMiddle);
    free_from = middle + half + 6;
  }
  if (panel_.x.label.empty()) return bottom + 24;
  svg.text((left_ + right_) / 2, bottom + 33, panel_.x.label, "m", kSmall, Anchor::kMiddle);
  return bottom + 40;
}

// A label stands above the plot at the right of its line, or at the left if there is no room; lower
// if it would meet another one.
void PlotArea::draw_marks(Svg& svg, double top) const {
  std::vector<Box> taken;
  for (const Mark& mark : panel_.marks) {
    const double x = x_of(mark.x);
    if (x < left_ - 1 || x > right_ + 1) continue;
    svg.line(x, top, x, top + panel_.height, "a", true);
    const double width = text_width(mark.label, kSmall);
    const bool to_left = x + width + 4 > right_;
    Box box{to_left ? x - width : x, top - 14, to_left ? x : x + width, top - 1};
    while (std::ranges::any_of(taken, [&](const Box& other) { return other.meets(box); })) {
      box.top += 14;
      box.bottom += 14;
    }
    if (box.bottom > top + panel_.height) continue;
    taken.push_back(box);
    svg.text(to_left ? x : x + (box.top > top ? 4 : 0),
             box.top + 10,
             mark.label,
             "v",
             kSmall,
             to_left ? Anchor::kEnd : Anchor::kStart);
  }
}

// Series with error bars stand a little beside each other, so that their bars can be told apart.
double PlotArea::shift_of(const Series& series) const {
  constexpr double kApart = 6;
  double before = 0, all = 0;
  for (const Series& other : panel_.series) {
    if (!has_bars(other)) continue;
    ++all;
    if (&other < &series) ++before;
  }
  return has_bars(series) ? (before - (all - 1) / 2) * kApart : 0;
}

// The box of a point's marker and error bar.
PlotArea::Extent PlotArea::extent_of(const Series& series, const Point& point, double top) const {
  const double r = point.ringed ? 9 : 5, y = y_of(point.y, top);
  Extent extent{x_of(point.x) + shift_of(series), y, r, y - r, y + r};
  if (!has_bar(point) || (y_.logarithmic && point.low <= 0)) return extent;
  extent.top = std::min(extent.top, y_of(point.high, top) - 2);
  extent.bottom = std::max(extent.bottom, y_of(point.low, top) + 2);
  return extent;
}

void PlotArea::draw_lines(Svg& svg, double top) const {
  for (const Series& series : panel_.series) {
    const std::string colour = std::to_string(series.colour);
    const double shift = shift_of(series);
    std::string path, bars;
    bool down = false;  // the pen
    for (const Point& point : series.points) {
      if (!is_drawn(point)) {
        down = false;
        continue;
      }
      const double x = x_of(point.x) + shift;
      path += (down ? "L" : "M") + coordinate(x) + " " + coordinate(y_of(point.y, top));
      down = true;
      if (!has_bar(point) || (y_.logarithmic && point.low <= 0)) continue;
      const std::string low = coordinate(y_of(point.low, top)),
                        high = coordinate(y_of(point.high, top)), from = coordinate(x - 4);
      bars += fmt::format("M{0} {1}V{2}M{3} {1}h8M{3} {2}h8", coordinate(x), low, high, from);
    }
    if (series.line && !path.empty())
      svg.path(path,
               (series.faint ? "faint s" : "s") + colour,
               fmt::format("stroke-width=\"{}\" stroke-linejoin=\"round\"{}",
                           series.faint ? 1 : 1.8,
                           series.dashed ? " stroke-dasharray=\"5 4\"" : ""));
    if (!bars.empty()) svg.path(bars, "s" + colour, "stroke-width=\"1.4\"");
    for (const Point& point : series.points) {
      if (!is_drawn(point)) continue;
      const double x = x_of(point.x) + shift, y = y_of(point.y, top);
      if (series.markers) svg.marker(series.colour, x, y, "f" + colour);
      if (point.ringed) svg.ring(x, y);
    }
  }
}

void PlotArea::draw_bars(Svg& svg, double top) const {
  const double slot = (right_ - left_) / static_cast<double>(panel_.categories.size());
  const double width =
      std::min(64.0, slot * 0.76 / static_cast<double>(std::max<size_t>(1, panel_.series.size())));
  const auto count = static_cast<double>(panel_.series.size());
  const double base = y_of(y_.logarithmic ? y_.low : 0, top);
  for (size_t i = 0; i < panel_.series.size(); ++i) {
    const Series& series = panel_.series[i];
    for (const Point& point : series.points) {
      if (!is_drawn(point)) continue;
      const double x = x_of(point.x) + (static_cast<double>(i) - count / 2) * width;
      const double y = y_of(point.y, top), middle = x + width / 2;
      svg.rect(x + 1,
               std::min(y, base),
               width - 2,
               std::abs(base - y),
               "f" + std::to_string(series.colour));
      double above = std::min(y, base);
      if (has_bar(point) && point.high > point.low) {
        const double low = y_of(point.low, top), high = y_of(point.high, top);
        svg.path(fmt::format("M{0} {1}V{2}M{3} {1}h8M{3} {2}h8",
                             coordinate(middle),
                             coordinate(low),
                             coordinate(high),
                             coordinate(middle - 4)),
                 "a",
                 "stroke-width=\"1.6\"");
        above = std::min(above, high);
      }
      if (point.ringed) svg.ring(middle, y);
      if (!point.label.empty() && text_width(point.label, kSmall) <= slot)
        svg.text(
            middle, above - (point.ringed ? 11 : 5), point.label, "v", kSmall, Anchor::kMiddle);
    }
  }
}

void PlotArea::draw_stacks(Svg& svg, double top) const {
  const double slot = (right_ - left_) / static_cast<double>(panel_.categories.size());
  const double width = panel_.categories.size() > 40 ? slot : std::min(84.0, slot * 0.7);
  for (size_t i = 0; i < panel_.categories.size(); ++i) {
    double above = 0, below = 0;
    for (const Series& series : panel_.series) {
      const double value = i < series.points.size() ? series.points[i].y : 0;
      if (!std::isfinite(value) || value == 0) continue;
      double& sum = value > 0 ? above : below;
      const double from = y_of(sum, top), to = y_of(sum + value, top);
      sum += value;
      svg.rect(x_of(static_cast<double>(i)) - width / 2,
               std::min(from, to),
               width,
               std::abs(from - to),
               "f" + std::to_string(series.colour),
               fmt::format("{}, {}: {}", panel_.categories[i], series.name, number_text(value, 3)));
    }
  }
}

// Writes the labels of points where they meet neither each other nor a point or its error bar:
// above, below, or at the sides. A label without room is left out; the CSV has its value.
void PlotArea::draw_values(Svg& svg, double top) const {
  if (panel_.kind != PanelKind::kLines) return;
  std::vector<Box> taken;
  for (const Series& series : panel_.series) {
    if (!series.markers) continue;
    for (const Point& point : series.points) {
      if (!is_drawn(point)) continue;
      const Extent at = extent_of(series, point, top);
      taken.push_back({at.x - at.r, at.y - at.r, at.x + at.r, at.y + at.r});
      taken.push_back({at.x - 3, at.top, at.x + 3, at.bottom});
    }
  }
  for (const Series& series : panel_.series)
    for (const Point& point : series.points) {
      if (point.label.empty() || !is_drawn(point)) continue;
      const Extent at = extent_of(series, point, top);
      const double half = text_width(point.label, kSmall) / 2, beside = half + at.r + 3;
      struct Place {
        double x, y;
      };
      for (const Place& place : {Place{at.x, at.top - 3},
                                 Place{at.x, at.bottom + 11},
                                 Place{at.x - beside, at.y + 4},
                                 Place{at.x + beside, at.y + 4},
                                 Place{at.x - beside, at.y - at.r - 4},
                                 Place{at.x + beside, at.y - at.r - 4},
                                 Place{at.x - beside, at.y + at.r + 11},
                                 Place{at.x + beside, at.y + at.r + 11}}) {
        const Box box{place.x - half, place.y - 10, place.x + half, place.y + 2};
        if (box.left < left_ || box.right > right_ + kRight || box.top < top - 10 ||
            box.bottom > top + panel_.height ||
            std::ranges::any_of(taken, [&](const Box& other) { return other.meets(box); }))
          continue;
        taken.push_back(box);
        svg.text(place.x, place.y, point.label, "v", kSmall, Anchor::kMiddle);
        break;
      }
    }
}

// Columns over the plot, each with the series' values at the point that is nearest to its middle.
void PlotArea::draw_hovers(Svg& svg, double top) const {
  constexpr int kColumns = 80;
  const double width = (right_ - left_) / kColumns;
  for (int i = 0; i < kColumns; ++i) {
    const double middle = (i + 0.5) * width + left_;
    std::string title;
    for (const Series& series : panel_.series) {
      if (series.faint) continue;
      const Point* nearest = nullptr;
      double best = width;
      // Points are in the order of x: a binary search for the first that may be near.
      auto it = std::ranges::lower_bound(
          series.points, middle - width, {}, [&](const Point& point) { return x_of(point.x); });
      for (; it != series.points.end() && x_of(it->x) <= middle + width; ++it) {
        const double distance = std::abs(x_of(it->x) - middle);
        if (!is_drawn(*it) || distance > best) continue;
        best = distance;
        nearest = &*it;
      }
      if (nearest == nullptr) continue;
      title += fmt::format(
          "{}{}{}: {}",
          title.empty() ? "" : "\n",
          panel_.x.label.empty() ? "" : panel_.x.label + " " + number_text(nearest->x, 9) + ", ",
          series.name.empty() ? panel_.y.label : series.name,
          number_text(nearest->y, 5));
    }
    if (!title.empty()) svg.rect(left_ + i * width, top, width, panel_.height, "h", title);
  }
}

}  // namespace lockstep::plots
