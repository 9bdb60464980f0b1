#pragma once
// The moving average of the weights (EMA).

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/layout/sharding.h"
#include "runtime/checkpoint/format/state.h"
#include "runtime/config/run_config.h"
#include "runtime/exec/backend.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep::train {

// Names of all arrays of floats that a rank keeps for its owned ranges: the optimizer's moments
// and, last, the average of the weights if the config asks for one.
std::vector<std::string> kept_arrays(const RunConfig& config);

// Moving average of the weights of this rank's owned ranges, e <- decay e + (1 - decay) w, in fp32.
// Its methods queue work.
class WeightAverage {
 public:
  // `average`: the packed owned ranges, in memory of the backend; borrowed. `pieces` are the parts
  // of these ranges. `checksums` watches the average; may be null. `gated`: update() passes the
  // backend's UpdateGate.
  WeightAverage(float decay,
                std::span<const StatePiece> pieces,
                exec::Backend& backend,
                const FlatWeights& weights,
                float* average,
                StateChecksums* checksums,
                bool gated);

  // Sets the average to the weights.
  void begin();
  // One step of the average.
  void update() {
    update_->load();
    update_->run();
  }
  // Swaps average and weights, bit for bit, and rounds the new weights to the type that the ops
  // read.
  void swap() {
    exchange_->load();
    exchange_->run();
  }

 private:
  // A piece of the weights and of their average.
  struct Piece {
    const float* weights;
    float* average;
    int64_t elements;
  };
  exec::Backend& backend_;
  std::vector<Piece> pieces_;
  std::unique_ptr<exec::FlatUpdate> update_, exchange_;
};

}  // namespace lockstep::train
