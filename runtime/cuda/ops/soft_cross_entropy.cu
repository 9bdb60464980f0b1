#include "runtime/graph/ops/soft_cross_entropy.h"

#include <cmath>
#include <limits>

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/loss_row_kernel.h"
#include "runtime/cuda/plan/losses.h"

namespace lockstep::cuda {
namespace {

// The largest of the columns that a lane of a warp, or all of its lanes, have seen, and the first
// column that has it. NaN is never the largest.
struct Largest {
  float value = -std::numeric_limits<float>::infinity();
  int32_t column = std::numeric_limits<int32_t>::max();

  __device__ __forceinline__ void add(float x, int32_t at) {
    if (x > value || column == std::numeric_limits<int32_t>::max()) {
      value = x > value ? x : value;
      column = at;
    }
  }
  __device__ __forceinline__ void merge() {
    const float own = value;
    value = warp_reduce<Max>(own);
    column = warp_reduce<Min>(own == value ? column : std::numeric_limits<int32_t>::max());
  }
};

template <bool Backward, typename T>
struct SoftCrossEntropyRow {
  graph::SoftCrossEntropy<T> op;

  __device__ RowLoss operator()(int64_t row, int lane, bool counts, float gradient_scale) const {
    const auto classes = static_cast<int32_t>(op.classes);
    const T* const x = op.logits + row * op.classes;
    const float* const t = op.targets + row * op.classes;
    Largest of_logits, of_targets;
    for (int32_t c = lane; c < classes; c += kWarp) {
      of_logits.add(to_float(x[c]), c);
      of_targets.add(t[c], c);
    }
    of_logits.merge();
    of_targets.merge();
    float exponentials = 0, targets = 0, wanted = 0, distances = 0;
    for (int32_t c = lane; c < classes; c += kWarp) {
      const float d = to_float(x[c]) - of_logits.value;
      exponentials += expf(d);
      targets += t[c];
      wanted = fmaf(t[c], d, wanted);
      distances += d;
    }
    exponentials = warp_reduce<Sum>(exponentials);
    targets = warp_reduce<Sum>(targets);
    wanted = warp_reduce<Sum>(wanted);
    distances = warp_reduce<Sum>(distances);
    const float kept = 1 - op.label_smoothing;
    const float each = op.label_smoothing / static_cast<float>(op.classes);
    const float total = kept * targets + op.label_smoothing;
    if constexpr (Backward) {
      for (int32_t c = lane; c < classes; c += kWarp) {
        const float e = expf(to_float(x[c]) - of_logits.value);
        const float gradient = (e * (total / exponentials) - (kept * t[c] + each)) * gradient_scale;
        op.gradient[row * op.classes + c] = round_to<T>(counts ? gradient : 0);
      }
    }
    const float loss = total * logf(exponentials) - kept * wanted - each * distances;
    return {loss, of_logits.column == of_targets.column ? 1.0f : 0.0f};
  }
};

void run(const graph::OpCall& call) {
  by_type<graph::SoftCrossEntropy>(call, [&]<typename T>(const auto& op) {
    op.gradient != nullptr ? run_loss_rows(call, SoftCrossEntropyRow<true, T>{op})
                           : run_loss_rows(call, SoftCrossEntropyRow<false, T>{op});
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run, loss_rows_workspace>(graph::OpKind::kSoftCrossEntropy, "native")};

}  // namespace

constinit const exec::Implementations kCudaSoftCrossEntropy = kRows;

}  // namespace lockstep::cuda
