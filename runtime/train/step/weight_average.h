#pragma once
// The moving average of the weights (EMA).

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/sharding.h"
#include "runtime/checkpoint/state.h"
#include "runtime/config/run_config.h"
#include "runtime/exec/backend.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep {

// Names of all arrays of floats that a rank keeps for its owned ranges: the optimizer's moments
// and, last, the average of the weights where the config asks for one.
std::vector<std::string> kept_arrays(const RunConfig& config);

// Moving average of the weights of this rank's owned ranges, e <- decay e + (1 - decay) w, in fp32.
// What its methods do is queued.
class WeightAverage {
 public:
  // `average`: the owned ranges, which the pieces are of, one after the other, in memory of the
  // backend; borrowed. `sums`, unless null, watch it.
  WeightAverage(float decay,
                std::span<const StatePiece> pieces,
                Backend& backend,
                const FlatWeights& weights,
                float* average,
                StateSums* sums);

  // The average begins with the weights.
  void begin();
  // One step of the average.
  void update() { update_->run(); }
  // Exchanges average and weights, bit for bit; what the ops read of these follows.
  void swap() { exchange_->run(); }

 private:
  // Weights and their average.
  struct Piece {
    const float* weights;
    float* average;
    int64_t elements;
  };
  Backend& backend_;
  std::vector<Piece> pieces_;
  std::unique_ptr<FlatUpdate> update_, exchange_;
};

}  // namespace lockstep
