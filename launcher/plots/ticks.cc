#include "launcher/plots/ticks.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::plots {
namespace {

// A tenth of a step: ticks at the ends count although they were computed with rounding.
constexpr double kSlack = 1e-6;

// The smallest of 1, 2, 5 times a power of ten that is at least `least`.
double step_of(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least * (1 - kSlack)) return factor * power;
  return 10 * power;
}

std::string without_zeros(std::string text) {
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

// A value with this many significant digits, without an exponent.
std::string plain(double value, int digits) {
  const int before = static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1;
  return without_zeros(fmt::format("{:.{}f}", value, std::max(0, digits - before)));
}

}  // namespace

double Scale::place_of(double value) const {
  if (logarithmic) return std::log(value / low) / std::log(high / low);
  return (value - low) / (high - low);
}

std::string number_text(double value, int digits) {
  if (!std::isfinite(value)) return "not finite";
  const double size = std::abs(value);
  if (size == 0) return "0";
  constexpr std::array kUnits{
      std::pair(1e12, "T"), std::pair(1e9, "G"), std::pair(1e6, "M"), std::pair(1e4, "k")};
  if (size >= 1e15 || size < 1e-4) {
    // "3.20e-05" becomes "3.2e-5".
    const std::string text = fmt::format("{:.{}e}", value, digits - 1);
    const size_t e = text.find('e');
    return fmt::format("{}e{}", without_zeros(text.substr(0, e)), std::stoi(text.substr(e + 1)));
  }
  for (const auto& [from, unit] : kUnits)
    if (size >= from * (1 - 1e-12)) return plain(value / (from == 1e4 ? 1e3 : from), digits) + unit;
  return plain(value, digits);
}

std::vector<Tick> linear_ticks(double low, double high, int max) {
  double step = step_of((high - low) / std::max(1, max));
  const auto first = [&] { return std::ceil(low / step - kSlack); };
  const auto last = [&] { return std::floor(high / step + kSlack); };
  while (last() - first() + 1 > max) step = step_of(step * 1.5);
  std::vector<Tick> ticks;
  for (double i = first(); i <= last(); ++i) {
    const double at = i * step;
    // As many digits as tell neighbours apart.
    const double size = std::max(std::abs(at), step);
    const int digits = 1 + static_cast<int>(std::floor(std::log10(size) + kSlack) -
                                            std::floor(std::log10(step) + kSlack));
    ticks.push_back({at, number_text(at, std::clamp(digits, 1, 12))});
  }
  return ticks;
}

std::vector<Tick> log_ticks(double low, double high, int max) {
  const int first = static_cast<int>(std::ceil(std::log10(low) - kSlack)),
            last = static_cast<int>(std::floor(std::log10(high) + kSlack));
  std::vector<Tick> ticks;
  const auto add = [&](double at) {
    if (at >= low * (1 - kSlack) && at <= high * (1 + kSlack))
      ticks.push_back({at, number_text(at, 2)});
  };
  if (last - first + 1 >= 3) {
    const int every = (last - first) / std::max(1, max) + 1;
    for (int power = first; power <= last; power += every) add(std::pow(10, power));
    return ticks;
  }
  for (int power = first - 1; power <= last; ++power)
    for (const double factor : {1.0, 2.0, 5.0}) add(factor * std::pow(10, power));
  return ticks.size() >= 3 ? ticks : linear_ticks(low, high, max);
}

std::vector<Tick> ticks_of(const Scale& scale, int max) {
  return scale.logarithmic ? log_ticks(scale.low, scale.high, max)
                           : linear_ticks(scale.low, scale.high, max);
}

Scale rounded_scale(double low, double high, int max_ticks) {
  if (!(high > low)) {
    const double wider = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= wider;
    high += wider;
  }
  const double step = step_of((high - low) / std::max(1, max_ticks - 1));
  return {std::floor(low / step + kSlack) * step, std::ceil(high / step - kSlack) * step};
}

}  // namespace lockstep::plots
