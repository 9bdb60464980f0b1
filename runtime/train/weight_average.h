#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/sharding.h"
#include "runtime/checkpoint/state.h"
#include "runtime/config/run_config.h"
#include "runtime/exec/backend.h"

namespace lockstep {

// Names of all arrays of floats that a rank keeps for its owned ranges: the optimizer's moments
// and, last, the average of the weights where the config asks for one.
std::vector<std::string> kept_arrays(const RunConfig& config);

// Moving average of the weights of this rank's owned ranges, e <- decay e + (1 - decay) w, in fp32.
// Memory that the host reaches, and weights in fp32: on the CPU.
class WeightAverage {
 public:
  // `weights`: the flat buffer; `average`: the owned ranges one after the other. Borrowed.
  WeightAverage(
      float decay, std::span<const Range> owned, Backend& backend, float* weights, float* average);

  // The average begins with the weights.
  void begin();
  // Queues one step of the average.
  void update() { backend_.update(constants_, slices_); }
  // Exchanges average and weights, bit for bit.
  void swap();

 private:
  Backend& backend_;
  std::span<OptimizerConstants> constants_;
  std::vector<OptimizerSlice> slices_;  // by owned range; `gradients` are the weights
};

}  // namespace lockstep
