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

// What an optimizer works on; borrowed.
struct OptimizerMemory {
  std::byte* parameters = nullptr;  // flat, of type `compute`
  DType compute = DType::kF32;
  float* masters = nullptr;  // the owned ranges one after the other; null where compute is fp32
  float* moments = nullptr;  // for each moment in order, the owned ranges one after the other
};

// Updates the ranges of the flat parameter buffer that this rank owns (ZeRO stage 1). The ranges
// are cut where the kind of update changes: by default biases and norm gains are not decayed, and
// running statistics are averaged whatever the optimizer.
class Optimizer {
 public:
  Optimizer(const OptimizerConfig& config,
            const ParameterLayout& layout,
            std::vector<Range> owned,
            Backend& backend,
            const OptimizerMemory& memory);

  // What the next update() does. `step` counts from 1 (bias correction); `gradient_scale`
  // multiplies every gradient, and carries the mean over samples and the clipping.
  void prepare(double lr, double gradient_scale, int64_t step);
  // Queues one step from the flat gradients: always the same work on the same memory.
  void update(const float* gradients);

  const std::vector<Range>& owned() const { return owned_; }
  // Where, in the moments, those of moment `index` for owned range `range` begin.
  int64_t moment_offset(size_t index, size_t range) const;
  // All moments together.
  int64_t moment_elements() const { return owned_elements_ * static_cast<int64_t>(moments_); }

 private:
  // How parameters are updated: places among the constants.
  enum Group : size_t { kPlain, kDecayed, kStatistics, kGroups };
  struct Segment {  // of one owned range, of one group
    Range range;
    int64_t local = 0;  // offset of range.begin among the owned elements
    Group group = kPlain;
  };

  const OptimizerConfig& config_;
  std::vector<Range> owned_;
  std::vector<int64_t> local_offsets_;  // of each owned range
  int64_t owned_elements_ = 0;
  Group group_of(const ParameterSlot& slot) const;
  OptimizerSlice slice_of(const Segment& segment, const float* gradients) const;
  OptimizerConstants constants_for(bool decay,
                                   double lr,
                                   double gradient_scale,
                                   int64_t step) const;

  Backend& backend_;
  OptimizerMemory memory_;
  size_t moments_;                           // kept per parameter
  std::span<OptimizerConstants> constants_;  // by group
  std::vector<Segment> segments_;
  std::vector<OptimizerSlice> slices_;  // of the segments, in the update under way
};

}  // namespace lockstep
