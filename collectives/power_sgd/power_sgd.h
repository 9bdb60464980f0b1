#pragma once
// PowerSGD (Vogels et al., 2019): sums of gradients that travel as thin matrices.
//
// The gradient of a group of lanes, with what the steps before have left out of it (its residual),
// is a matrix M. All ranks have the right factor R of the step before. They sum left = M R over the
// groups, make its columns orthonormal, and sum right = M^T left. The gradient is then left
// right^T, and what it lacks of M stays with the group. Two sums of thin matrices travel in place
// of one of whole ones; vectors and small matrices travel with the first, as they are.
//
// Sums are those of the tree over the groups. So the bits are the same on any number of ranks, up
// to one for each group.

#include <vector>

#include "collectives/power_sgd/power_sgd_layout.h"
#include "collectives/power_sgd/power_sgd_products.h"
#include "collectives/reduce/compressed_all_reduce.h"
#include "collectives/reduce/small_all_reduce.h"

namespace lockstep {

class PowerSgd final : public CompressedAllReduce {
 public:
  struct Options {
    PowerSgdLayout layout;
    int lanes = 1;
    Topology topology;  // shares no memory
    int64_t flat_elements = 0;
  };
  // Both zeros at first, borrowed: a flat buffer for each of this rank's groups, and
  // layout.factor_elements().
  struct Memory {
    float* residuals = nullptr;
    float* factors = nullptr;
  };
  PowerSgd(const RankCommunicators& communicators,
           SliceMath& math,
           PowerSgdProducts& products,
           Options options,
           const Memory& memory);

  int group_lanes() const override { return options_.lanes / options_.layout.groups; }
  void add(int group, const Range& range, const float* sums) override;
  void finish(float* sums) override;

  // Reports both sums to it, borrowed, from now on; null: to none.
  void observe(ExchangeObserver* observer) {
    lefts_.observe(observer);
    rights_.observe(observer);
  }
  void begin_step();
  // Milliseconds that the host spent waiting for other ranks since begin_step().
  double exposed_ms() const { return lefts_.exposed_ms() + rights_.exposed_ms(); }

 private:
  using Matrix = PowerSgdLayout::Matrix;
  // All right factors: they and the residuals are what a step leaves to the next.
  float* rights() const { return rights_.sum(); }
  void sum_lefts();
  void sum_rights();
  float* residuals(int group) const { return memory_.residuals + group * options_.flat_elements; }
  // Calls body(range of the flat buffer, place among the lefts) for what travels as it is.
  template <typename Body>
  void each_exact(Body body) const;
  void copy(const float* from, float* to, int64_t n);

  SliceMath& math_;
  PowerSgdProducts& products_;
  Options options_;
  Memory memory_;
  int groups_;  // of this rank
  SmallAllReduce lefts_, rights_;
};

}  // namespace lockstep
