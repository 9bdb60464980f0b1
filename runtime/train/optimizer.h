#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/sharding.h"
#include "runtime/config/run_config.h"
#include "runtime/exec/backend.h"
#include "runtime/plan/plan.h"

namespace lockstep {

// "sgd", "adam" or "adamw", as checkpoints name it.
std::string optimizer_name(const OptimizerConfig& config);
// Names of the moments that the optimizer keeps per parameter, as PyTorch names them.
std::vector<std::string> moment_names(const OptimizerConfig& config);

// Updates the ranges of the flat parameter buffer that this rank owns (ZeRO stage 1). The ranges
// are cut where the weight decay changes: by default biases and norm gains are not decayed.
class Optimizer {
 public:
  // `moments`: for each moment in order, the owned ranges one after the other; borrowed.
  Optimizer(const OptimizerConfig& config,
            const ParameterLayout& layout,
            std::vector<Range> owned,
            Backend& backend,
            float* moments);

  // One step. `step` counts from 1 (bias correction); `gradient_scale` multiplies every gradient,
  // and carries the mean over samples and the clipping.
  void update(
      float* parameters, const float* gradients, double lr, double gradient_scale, int64_t step);

  const std::vector<Range>& owned() const { return owned_; }
  // Where, in the moments, those of moment `index` for owned range `range` begin.
  int64_t moment_offset(size_t index, size_t range) const;
  // All moments together.
  int64_t moment_elements() const {
    return owned_elements_ * static_cast<int64_t>(moment_names(config_).size());
  }

 private:
  struct Segment {  // of one owned range, with one weight decay
    Range range;
    int64_t local = 0;  // offset of range.begin among the owned elements
    bool decay = false;
  };

  const OptimizerConfig& config_;
  std::vector<Range> owned_;
  std::vector<int64_t> local_offsets_;  // of each owned range
  int64_t owned_elements_ = 0;
  Backend& backend_;
  float* moments_;
  std::vector<Segment> segments_;
};

}  // namespace lockstep
