#pragma once
// A forecast is a range: the least and the most that is expected.

namespace lockstep::forecast {

struct Range {
  double low = 0, high = 0;

  static constexpr Range exactly(double value) { return {value, value}; }

  constexpr Range operator+(const Range& other) const {
    return {low + other.low, high + other.high};
  }
  constexpr Range& operator+=(const Range& other) { return *this = *this + other; }
  constexpr Range operator*(double factor) const { return {low * factor, high * factor}; }
  constexpr double middle() const { return (low + high) / 2; }
  bool operator==(const Range&) const = default;
};

// What is done in a time, at a rate: the longest time gives the lowest rate.
constexpr Range rate_of(double work, const Range& seconds) {
  return {work / seconds.high, work / seconds.low};
}

}  // namespace lockstep::forecast
