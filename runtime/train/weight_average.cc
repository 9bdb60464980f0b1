#include "runtime/train/weight_average.h"

#include <algorithm>

#include "runtime/train/optimizer.h"

namespace lockstep {

std::vector<std::string> kept_arrays(const RunConfig& config) {
  std::vector<std::string> names = moment_names(config.optimizer);
  if (config.train.ema_decay > 0) names.push_back(kAverageArray);
  return names;
}

WeightAverage::WeightAverage(
    float decay, std::span<const Range> owned, Backend& backend, float* weights, float* average)
    : backend_(backend), constants_(backend.host_array<OptimizerConstants>(1)) {
  constants_[0] = MovingAverageConstants{
      .keep = decay, .weight = static_cast<float>(1 - static_cast<double>(decay))};
  for (const Range& range : owned) {
    slices_.push_back({.constants = constants_[0],
                       .elements = range.size(),
                       .parameters = average,
                       .gradients = weights + range.begin,
                       .first_moment = nullptr,
                       .second_moment = nullptr});
    average += range.size();
  }
}

void WeightAverage::begin() {
  for (const OptimizerSlice& slice : slices_)
    std::copy_n(slice.gradients, slice.elements, slice.parameters);
}

void WeightAverage::swap() {
  backend_.synchronize();
  for (const OptimizerSlice& slice : slices_)
    std::swap_ranges(
        slice.parameters, slice.parameters + slice.elements, const_cast<float*>(slice.gradients));
}

}  // namespace lockstep
