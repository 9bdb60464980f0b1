#include "runtime/train/folder/run_times.h"

#include <algorithm>
#include <iterator>

namespace lockstep {
namespace {

constexpr int64_t kMaxSkipped = 10;

constexpr size_t kMeanCount = std::size(kRankMeans);

}  // namespace

RunTimes::RunTimes(int64_t steps) : to_skip_(std::min(steps / 4, kMaxSkipped)) {}

void RunTimes::add(const StepRecord& record) {
  if (to_skip_ > 0) {
    --to_skip_;
    return;
  }
  ++sum_.steps;
  sum_.step_ms += record.step_ms;
  sum_.compute_ms += record.compute_ms;
  sum_.data_wait_ms += record.data_wait_ms;
  sum_.comm_exposed_ms += record.comm_exposed_ms;
  sum_.straggler_ms += record.straggler_ms;
  sum_.optimizer_ms += record.optimizer_ms;
}

std::vector<RankTimes> RunTimes::gather(Communicator& communicator,
                                        const std::vector<std::string>& hosts) const {
  const auto ranks = static_cast<size_t>(communicator.size());
  std::vector<double> means(ranks * kMeanCount);
  const auto steps = static_cast<double>(std::max<int64_t>(sum_.steps, 1));
  double* mine = means.data() + static_cast<size_t>(communicator.rank()) * kMeanCount;
  for (const RankMean& mean : kRankMeans) *mine++ = sum_.*mean.value / steps;
  communicator.all_gather(reinterpret_cast<std::byte*>(means.data()), kMeanCount * sizeof(double));
  std::vector<RankTimes> all(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    all[r].rank = static_cast<int>(r);
    all[r].host = hosts[r];
    all[r].steps = sum_.steps;
    for (size_t i = 0; i < kMeanCount; ++i) all[r].*kRankMeans[i].value = means[r * kMeanCount + i];
  }
  return all;
}

}  // namespace lockstep
