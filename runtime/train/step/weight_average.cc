#include "runtime/train/step/weight_average.h"

#include <utility>

namespace lockstep {

std::vector<std::string> kept_arrays(const RunConfig& config) {
  std::vector<std::string> names = moment_names(config.optimizer);
  if (config.train.ema_decay > 0) names.push_back(kAverageArray);
  return names;
}

WeightAverage::WeightAverage(float decay,
                             std::span<const Range> owned,
                             Backend& backend,
                             const FlatWeights& weights,
                             float* average)
    : backend_(backend) {
  const auto moving = backend.host_array<OptimizerUpdate>(1),
             exchanging = backend.host_array<OptimizerUpdate>(1);
  moving[0] =
      MovingAverage{.keep = decay, .weight = static_cast<float>(1 - static_cast<double>(decay))};
  exchanging[0] = Exchange();
  // Gradients are, to the one, the weights that it averages; to the other, the average.
  std::vector<OptimizerSlice> moved, exchanged;
  int64_t local = 0;
  for (const Range& range : owned) {
    OptimizerSlice slice = weights.slice(range, local);
    slice.gradients = average + local;
    exchanged.push_back(slice);
    pieces_.push_back({slice.parameters, slice.gradients, slice.elements});
    moved.push_back(
        {.elements = slice.elements, .parameters = slice.gradients, .gradients = slice.parameters});
    local += range.size();
  }
  update_ = backend.flat_update(moving, std::move(moved));
  exchange_ = backend.flat_update(exchanging, std::move(exchanged));
}

void WeightAverage::begin() {
  for (const Piece& piece : pieces_)
    backend_.copy(reinterpret_cast<const std::byte*>(piece.weights),
                  reinterpret_cast<std::byte*>(piece.average),
                  static_cast<size_t>(piece.elements) * sizeof(float));
}

}  // namespace lockstep
