#include "runtime/train/folder/run_times.h"

#include <algorithm>
#include <array>

#include "runtime/train/gather_values.h"

namespace lockstep::train {
namespace {

constexpr int64_t kMaxSkipped = 10;

constexpr size_t kMeanCount = std::size(kRankMeans);

}  // namespace

RunTimes::RunTimes(int64_t steps) : to_skip_(std::min(steps / 4, kMaxSkipped)) {}

void RunTimes::add(const metrics::StepRecord& record) {
  if (to_skip_ > 0) {
    --to_skip_;
    return;
  }
  ++sum_.steps;
  for (const RankMean& mean : kRankMeans) sum_.*mean.value += record.*mean.of_step;
}

double RunTimes::mean_step_ms() const {
  return sum_.steps == 0 ? 0 : sum_.step_ms / static_cast<double>(sum_.steps);
}

std::vector<RankTimes> RunTimes::gather(collectives::Communicator& communicator,
                                        const std::vector<std::string>& hosts) const {
  std::array<double, kMeanCount> mine;
  const auto steps = static_cast<double>(std::max<int64_t>(sum_.steps, 1));
  for (size_t i = 0; i < kMeanCount; ++i) mine[i] = sum_.*kRankMeans[i].value / steps;
  std::vector<RankTimes> all;
  for (const auto& means : gather_values(communicator, mine)) {
    RankTimes& times = all.emplace_back(RankTimes{.rank = static_cast<int>(all.size())});
    times.host = hosts[static_cast<size_t>(times.rank)];
    times.steps = sum_.steps;
    for (size_t i = 0; i < kMeanCount; ++i) times.*kRankMeans[i].value = means[i];
  }
  return all;
}

}  // namespace lockstep::train
