#include "runtime/train/step/weight_average.h"

#include <utility>

namespace lockstep::train {

std::vector<std::string> kept_arrays(const RunConfig& config) {
  std::vector<std::string> names = moment_names(config.optimizer);
  if (config.train.ema_decay > 0) names.push_back(checkpoint::kAverageArray);
  return names;
}

WeightAverage::WeightAverage(float decay,
                             std::span<const StatePiece> pieces,
                             exec::Backend& backend,
                             const FlatWeights& weights,
                             float* average,
                             StateChecksums* checksums,
                             bool gated)
    : backend_(backend) {
  const auto moving = backend.host_array<exec::OptimizerUpdate>(1),
             exchanging = backend.host_array<exec::OptimizerUpdate>(1);
  moving[0] = exec::MovingAverage{.keep = decay,
                                  .weight = static_cast<float>(1 - static_cast<double>(decay))};
  exchanging[0] = exec::Exchange();
  // The "gradients" are, for the average, the weights; for the exchange, the average.
  std::vector<exec::OptimizerSlice> moved, exchanged;
  std::vector<size_t> numbers;
  for (const StatePiece& piece : pieces) {
    exec::OptimizerSlice slice = weights.slice(piece.range, piece.local);
    slice.gradients = average + piece.local;
    numbers.push_back(numbers.size());
    exchanged.push_back(slice);
    pieces_.push_back({slice.parameters, slice.gradients, slice.elements});
    moved.push_back(
        {.elements = slice.elements, .parameters = slice.gradients, .gradients = slice.parameters});
  }
  if (checksums != nullptr)
    checksums->watch(
        moved, numbers, {.gradients = StateArray::kWeight, .parameters = StateArray::kAverage});
  update_ = backend.flat_update(moving, std::move(moved), gated);
  exchange_ = backend.flat_update(exchanging, std::move(exchanged), false);
}

void WeightAverage::begin() {
  for (const Piece& piece : pieces_)
    backend_.copy(reinterpret_cast<const std::byte*>(piece.weights),
                  reinterpret_cast<std::byte*>(piece.average),
                  static_cast<size_t>(piece.elements) * sizeof(float));
}

}  // namespace lockstep::train
