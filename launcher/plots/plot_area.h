#pragma once
// The plot of one panel: its axes, grid, lines, bars and values.

#include <string>
#include <vector>

#include "launcher/plots/picture.h"
#include "launcher/plots/svg.h"
#include "launcher/plots/ticks.h"

namespace lockstep::plots {

class PlotArea {
 public:
  // Borrows the panel. `width`: of the picture.
  PlotArea(const Panel& panel, double width);

  // Draws it with its upper edge at `top`, and returns where the labels below it end. `hovers`:
  // with areas that show the values to the pointer.
  double draw(Svg& svg, double top, bool hovers) const;

 private:
  double x_of(double x) const { return left_ + x_.place_of(x) * (right_ - left_); }
  double y_of(double y, double top) const { return top + (1 - y_.place_of(y)) * panel_.height; }
  // Where a point is drawn: its middle, the radius of its marker, and the ends of its error bar.
  struct Extent {
    double x, y, r, top, bottom;
  };
  bool is_drawn(const Point& point) const;
  double shift_of(const Series& series) const;
  Extent extent_of(const Series& series, const Point& point, double top) const;
  void draw_y_axis(Svg& svg, double top) const;
  double draw_x_axis(Svg& svg, double top) const;
  void draw_marks(Svg& svg, double top) const;
  void draw_lines(Svg& svg, double top) const;
  void draw_bars(Svg& svg, double top) const;
  void draw_stacks(Svg& svg, double top) const;
  void draw_values(Svg& svg, double top) const;
  void draw_hovers(Svg& svg, double top) const;

  const Panel& panel_;
  Scale x_, y_;
  std::vector<Tick> x_ticks_, y_ticks_;
  double left_ = 0, right_ = 0;
};

}  // namespace lockstep::plots
