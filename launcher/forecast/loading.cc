#include "launcher/forecast/loading.h"

#include "launcher/forecast/some_samples.h"
#include "runtime/base/time.h"
#include "runtime/data/loader.h"

namespace lockstep::forecast {
namespace {

// The time of one sample on one thread; 0 if it cannot be read.
double sample_seconds(const data::Dataset& data) {
  constexpr double kEnough_ms = 20;
  double start_ms = 0, end_ms = 0;
  const int64_t read = read_some(data, [&](const std::vector<std::byte>&) {
    end_ms = now_ms();
    if (start_ms == 0) start_ms = end_ms;  // the first one warms up
    return end_ms - start_ms < kEnough_ms;
  });
  return read < 2 ? 0 : (end_ms - start_ms) / 1e3 / static_cast<double>(read - 1);
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
