#pragma once
// What Adafactor keeps for matrices: averages over rows and over columns, in place of a moment of
// every element. Pure arithmetic, the same on every rank.
//
// The averages of all matrices lie in one array, which every rank holds as a whole. A rank sums the
// squares of the gradients that it owns. If ranks own different parts, each one adds up a share of
// the array for all of them, and the results are gathered.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/layout/sharding.h"
#include "runtime/base/factored_shape.h"

namespace lockstep::plan {

struct ParameterLayout;
struct ParameterSlot;
struct ShardingPlan;

// A parameter, or one of the row_parts that are fused into it. Other programs keep these as
// parameters of their own, with norms of their own.
struct TensorPart {
  size_t slot = 0;
  collectives::Range range;  // in the flat buffer
};
// The parts of all parameters that a step updates, without running statistics, by slot.
std::vector<TensorPart> trained_parts(const ParameterLayout& layout);
// Those of one parameter, frozen or not.
std::vector<TensorPart> parts_of(const ParameterLayout& layout, size_t slot);

// Whether Adafactor keeps averages of the parameter's rows and columns: it has two axes or more.
bool is_factored(const ParameterSlot& slot);

struct FactoredTensor : TensorPart {
  FactoredShape shape;
  int64_t first = 0;  // index of its first average: all rows, then all columns
};

struct AdafactorLayout {
  std::vector<FactoredTensor> tensors;
  int64_t averages = 0;
  int64_t share = 0;  // averages that a rank adds up for all ranks; 0: each rank adds up all
  int ranks = 1;
  bool separate = false;  // the device has memory of its own

  int64_t padded() const { return share * ranks; }
  // On the device: two words for each sum, the factors and, in memory of its own, the constants.
  size_t device_bytes() const;
  // On the host: the averages; a copy of the sums; and messages.
  size_t host_bytes() const;
  // Bytes that a rank sends in a step.
  int64_t sent_bytes() const;
};

AdafactorLayout make_adafactor_layout(const ParameterLayout& parameters,
                                      const ShardingPlan& sharding,
                                      bool separate);

}  // namespace lockstep::plan
