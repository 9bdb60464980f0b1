#pragma once
// Axes: which values are marked, and how numbers are written there.

#include <string>
#include <vector>

namespace lockstep::plots {

struct Tick {
  double at = 0;
  std::string label;
};

// An axis maps values to 0..1.
struct Scale {
  double low = 0, high = 1;
  bool logarithmic = false;  // then low > 0

  double place_of(double value) const;
};

// The shortest text for a reader: "0.25", "20k", "1.5M", "3e-5". At most `digits` significant ones.
std::string number_text(double value, int digits = 4);

// Multiples of 1, 2 or 5 times a power of ten within the range, at most `max` of them. low < high.
std::vector<Tick> linear_ticks(double low, double high, int max);

// Powers of ten within the range, or every second, third, ... of them; with 2 and 5 between them,
// or linear ticks, if there were fewer than three. 0 < low < high.
std::vector<Tick> log_ticks(double low, double high, int max);

std::vector<Tick> ticks_of(const Scale& scale, int max);

// A linear range that contains the values and begins and ends at a tick. If they are all equal, the
// range is widened.
Scale rounded_scale(double low, double high, int max_ticks);

}  // namespace lockstep::plots
