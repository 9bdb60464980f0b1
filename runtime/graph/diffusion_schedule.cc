#include "runtime/graph/diffusion_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/base/error.h"
#include "runtime/graph/ops/diffusion_noise.h"

namespace lockstep::graph {
namespace {

// The variance added by the step to a time (Ho et al. 2020).
double linear_beta(int64_t time) {
  constexpr double kFirst = 1e-4, kLast = 0.02;
  return kFirst + (kLast - kFirst) * static_cast<double>(time) / (kDiffusionTimes - 1);
}

// The same if a^2 is a squared cosine with a small offset. No step removes all of the image (Nichol
// and Dhariwal 2021).
double cosine_beta(int64_t time) {
  constexpr double kOffset = 0.008, kMax = 0.999;
  const auto power = [](int64_t at) {
    const double t = static_cast<double>(at) / kDiffusionTimes;
    const double cosine = std::cos((t + kOffset) / (1 + kOffset) * std::numbers::pi / 2);
    return cosine * cosine;
  };
  return std::min(1 - power(time + 1) / power(time), kMax);
}

}  // namespace

std::vector<DiffusionShares> diffusion_shares(DiffusionSchedule schedule) {
  LOCKSTEP_CHECK(schedule != DiffusionSchedule::kFlowMatching);
  std::vector<DiffusionShares> shares;
  double power = 1;  // of the image: a^2
  for (int64_t time = 0; time < kDiffusionTimes; ++time) {
    power *= 1 - (schedule == DiffusionSchedule::kLinear ? linear_beta(time) : cosine_beta(time));
    shares.push_back({std::sqrt(power), std::sqrt(1 - power)});
  }
  return shares;
}

}  // namespace lockstep::graph
