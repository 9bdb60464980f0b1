#pragma once
// What ranks send one another in a step.

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/layout/row_layout.h"
#include "collectives/layout/sharding.h"
#include "collectives/power_sgd/power_sgd_layout.h"
#include "runtime/base/dtype.h"
#include "runtime/plan/adafactor_layout.h"
#include "runtime/plan/muon_layout.h"

namespace lockstep::plan {

struct TrafficPlan {
  DType wire = DType::kF32;  // of gradients on their way to other ranks
  // for gradients sent as low-rank factors; then the gradients themselves are not exchanged
  std::optional<collectives::PowerSgdLayout> power_sgd;
  std::optional<MuonLayout> muon;            // if Muon is the optimizer
  std::optional<AdafactorLayout> adafactor;  // if Adafactor is
  // Elements of the buckets whose exchange may be in flight at a time, and the floats of their
  // staging buffer.
  int64_t exchanged_elements = 0, staging_elements = 0;
  // The all-gathers of the summed gradients if the optimizer is not sharded, except with
  // replicated_sums(). During the backward pass: those of sums sent as `wire`, through a staging
  // buffer, and the others. Those in the next forward pass are ProgramPlan::gathers.
  struct SumGathers {
    std::vector<collectives::GatherItem> rounded, floats;
    size_t staging_bytes = 0;
    bool empty() const { return rounded.empty() && floats.empty(); }
  } sum_gathers;
  // The sums' staging buffer follows that of the exchanges.
  size_t staging_bytes() const {
    return static_cast<size_t>(staging_elements) * sizeof(float) + sum_gathers.staging_bytes;
  }
  // Gradients of tables that are added row by row: the graph's, in their order.
  collectives::RowLayout rows;
  // Sent in a step by the rank that sends the most; shared memory sends nothing.
  int64_t wire_bytes = 0;
  int64_t network_bytes = 0;  // the part that goes to other nodes
};

}  // namespace lockstep::plan
