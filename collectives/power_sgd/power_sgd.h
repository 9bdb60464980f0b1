#pragma once
// PowerSGD (Vogels et al., 2019): gradients that are exchanged as two thin matrices.
//
// M is the gradient of a group of lanes plus the group's residual, which is what earlier steps have
// left out. `right` is the right factor of the step before, the same on all ranks. A step (finish)
// computes:
//
//   left  = sum over the groups of M right     columns made orthonormal; first all-reduce
//   right = sum over the groups of M^T left    second all-reduce
//   the gradient is left right^T               in place of the sum of all M
//   the residual of each group is M - left right^T / groups
//
// So two sums of thin matrices travel in place of one of full matrices. Vectors and small matrices
// travel uncompressed, together with the left factors; their residual is 0.
//
// Both sums use the tree over the groups. So the bits are the same on any number of ranks, up to
// one for each group.

#include <vector>

#include "collectives/power_sgd/power_sgd_layout.h"
#include "collectives/power_sgd/power_sgd_products.h"
#include "collectives/reduce/compressed_all_reduce.h"
#include "collectives/reduce/small_all_reduce.h"

namespace lockstep::collectives {

class PowerSgd final : public CompressedAllReduce {
 public:
  struct Options {
    PowerSgdLayout layout;
    Topology topology;  // must not share memory
    int64_t flat_elements = 0;
  };
  // Borrowed, and all 0 at first: a flat buffer for each of this rank's groups, and
  // layout.factor_elements() floats.
  struct Memory {
    float* residuals = nullptr;
    float* factors = nullptr;
  };
  PowerSgd(const RankCommunicators& communicators,
           SliceMath& math,
           PowerSgdProducts& products,
           Options options,
           const Memory& memory);

  void add(int group, const Range& range, const float* sums) override;
  void finish(float* sums) override;

  // Sets the observer of both sums, borrowed; null removes it.
  void observe(ExchangeObserver* observer) {
    lefts_.observe(observer);
    rights_.observe(observer);
  }
  void begin_step();
  // Milliseconds that the host has waited for other ranks since begin_step().
  double exposed_ms() const { return lefts_.exposed_ms() + rights_.exposed_ms(); }

 private:
  using Matrix = PowerSgdLayout::Matrix;
  // The right factors of all matrices. They and the residuals are the state that a step leaves to
  // the next.
  float* rights() const { return rights_.sum(); }
  void sum_lefts();
  void sum_rights();
  float* residuals(int group) const { return memory_.residuals + group * options_.flat_elements; }
  // Calls body(range of the flat buffer, offset in the memory of the left factors) for each range
  // that travels uncompressed.
  template <typename Body>
  void for_each_exact_range(Body body) const;
  void copy(const float* from, float* to, int64_t n);

  SliceMath& math_;
  PowerSgdProducts& products_;
  Options options_;
  Memory memory_;
  int groups_;  // of this rank
  SmallAllReduce lefts_, rights_;
};

}  // namespace lockstep::collectives
