#include "runtime/cuda/flat/update_gate.h"
#include "runtime/cuda/kernel_tools.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = ExactSum::kWords * kWarp;
constexpr int kStatistics = sizeof(collectives::LaneStatistics) / sizeof(double);

// The only block: each warp adds up a word of the ranks' squares, then four threads the lanes'
// statistics, in the order of the lanes, and one thread decides.
__global__ void __launch_bounds__(kThreads) decide_kernel(collectives::GatheredSums gathered,
                                                          exec::UpdateRule rule,
                                                          collectives::StepSums* sums,
                                                          GateState* gate) {
  __shared__ uint64_t words[ExactSum::kWords];
  __shared__ double loaded[kThreads * kStatistics], statistics[kStatistics];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, word = thread / kWarp;
  uint64_t sum = 0;
  for (int rank = lane; rank < gathered.ranks; rank += kWarp)
    sum += reinterpret_cast<const uint64_t*>(gathered.parts +
                                             static_cast<size_t>(rank) * gathered.part_bytes)[word];
  sum = warp_reduce<Sum>(sum);
  if (lane == 0) words[word] = sum;
  double statistic = 0;
  for (int first = 0; first < gathered.lanes; first += kThreads) {
    const int left = gathered.lanes - first, count = left < kThreads ? left : kThreads;
    if (thread < count) {
      const auto* const values =
          reinterpret_cast<const double*>(gathered.parts + gathered.places[first + thread]);
#pragma unroll
      for (int k = 0; k < kStatistics; ++k) loaded[thread * kStatistics + k] = values[k];
    }
    __syncthreads();
    if (thread < kStatistics)
      for (int i = 0; i < count; ++i) statistic += loaded[i * kStatistics + thread];
    __syncthreads();
  }
  if (thread < kStatistics) statistics[thread] = statistic;
  __syncthreads();
  if (thread != 0) return;
  // A copy would not fit into registers.
  const double squares = reinterpret_cast<const ExactSum*>(words)->value();
  const collectives::StepSums all = {
      statistics[0], statistics[1], statistics[2], statistics[3], squares};
  const exec::UpdateDecision decision = exec::decide(rule, all);
  *sums = all;
  *gate = {static_cast<float>(decision.gradient_scale), decision.finite ? 1u : 0u};
}

}  // namespace

void decide_update(const collectives::GatheredSums& gathered,
                   const exec::UpdateRule& rule,
                   collectives::StepSums* sums,
                   GateState* gate,
                   Stream stream) {
  launch({1, kThreads, stream}, decide_kernel, gathered, rule, sums, gate);
}

}  // namespace lockstep::cuda
