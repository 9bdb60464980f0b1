#include "runtime/train/step/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::train {

namespace {

// From `first` to `last` as x goes from 0 to 1.
double half_cosine(double first, double last, double x) {
  return last + (first - last) * 0.5 * (1 + std::cos(std::numbers::pi * x));
}

// Smith and Topin 2019, with the constants of PyTorch's OneCycleLR. The last step has rate `floor`.
double one_cycle(double lr, double floor, int64_t step, int64_t steps) {
  constexpr double kRise = 0.3, kBelow = 25;
  const auto at = static_cast<double>(step), all = static_cast<double>(steps);
  const double top = kRise * all - 1, end = all - 1;
  if (at <= top) return half_cosine(lr / kBelow, lr, top > 0 ? at / top : 1);
  return half_cosine(lr, floor, end > top ? std::min((at - top) / (end - top), 1.0) : 1);
}

}  // namespace

double learning_rate(const ScheduleConfig& schedule, int64_t step, int64_t steps, int64_t falls) {
  using Kind = ScheduleConfig::Kind;
  const double floor = schedule.min_lr;
  double lr = schedule.lr;
  if (schedule.kind == Kind::kPlateau) {
    for (int64_t i = 0; i < falls && lr > floor; ++i)
      lr = std::max(lr * static_cast<double>(schedule.plateau_factor), floor);
  }
  const int64_t warmup = schedule.warmup_steps;
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  // Progress from the end of warm-up to the end of the run, in [0, 1].
  const double x = std::clamp(static_cast<double>(step - warmup) /
                                  static_cast<double>(std::max<int64_t>(steps - warmup, 1)),
                              0.0,
                              1.0);
  switch (schedule.kind) {
    case Kind::kConstant:
    case Kind::kPlateau: return lr;
    case Kind::kLinear: return floor + (lr - floor) * (1 - x);
    case Kind::kCosine: return half_cosine(lr, floor, x);
    case Kind::kPolynomial:
      return floor + (lr - floor) * std::pow(1 - x, static_cast<double>(schedule.power));
    case Kind::kStep: {
      const auto passed = std::ranges::count_if(
          schedule.milestones, [&](int64_t milestone) { return step >= milestone; });
      return lr * std::pow(static_cast<double>(schedule.gamma), static_cast<double>(passed));
    }
    case Kind::kExponential:
      return std::max(
          lr * std::pow(static_cast<double>(schedule.gamma), static_cast<double>(step - warmup)),
          floor);
    case Kind::kOneCycle: return one_cycle(lr, floor, step, steps);
    case Kind::kCosineRestarts: {
      if (step >= steps) return floor;
      // In integers, so that a cycle begins exactly at its step.
      const int64_t span = steps - warmup, along = (step - warmup) * schedule.cycles % span;
      return half_cosine(lr, floor, static_cast<double>(along) / static_cast<double>(span));
    }
    case Kind::kWarmupStableDecay: {
      const int64_t left = steps - step;
      if (left > schedule.decay_steps) return lr;
      return floor + (lr - floor) * static_cast<double>(std::max<int64_t>(left, 0)) /
                         static_cast<double>(schedule.decay_steps);
    }
  }
  return lr;
}

}  // namespace lockstep::train
