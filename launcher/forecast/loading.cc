#include "launcher/forecast/loading.h"

#include <algorithm>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/time.h"
#include "runtime/data/loader.h"

namespace lockstep::forecast {
namespace {

// Of one sample, on one thread. 0: it cannot be read.
double sample_seconds(const data::Dataset& data) {
  constexpr int64_t kMost = 64;
  constexpr double kEnough_ms = 20;
  std::vector<std::byte> input(data.input().bytes()), target(data.target().bytes());
  const int64_t samples = std::min(kMost, data.samples());
  int64_t read = 0;
  try {
    data.read({.index = 0, .augment = true}, input.data(), target.data());  // warms up
    const double start_ms = now_ms();
    while (read < samples && now_ms() - start_ms < kEnough_ms) {
      data.read(
          {.index = read * data.samples() / samples, .augment = true}, input.data(), target.data());
      ++read;
    }
    return (now_ms() - start_ms) / 1e3 / static_cast<double>(read);
  } catch (const DataError&) {
    return 0;  // training will report it
  }
}

}  // namespace

Loading loading_of(const run::PreparedRun& prepared, int threads) {
  const data::Dataset* data = prepared.data->train.get();
  if (data == nullptr || !data->is_expensive() || !prepared.data->summary.placeholder.empty())
    return {};
  // The cores of a GPU's host are not known, and other CPUs are slower or faster than this one.
  constexpr int kThreadsOfGpu = 8;
  constexpr Range kOthers = {0.7, 1.5};
  const RunConfig& config = prepared.config;
  const int readers = data::choose_loader_threads(
      *data, config.data.decode_threads, prepared.ops->separate_memory ? kThreadsOfGpu : threads);
  const plan::ShardingPlan& sharding = prepared.plan.sharding;
  const double samples =
      static_cast<double>(config.train.global_batch) / sharding.lanes * sharding.shares().most();
  return {kOthers * (sample_seconds(*data) * samples / readers), readers};
}

}  // namespace lockstep::forecast
