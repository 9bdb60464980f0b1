#include "runtime/run/fit.h"

#include <functional>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::run {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

// One kind of memory: what a plan needs of it, and what is available.
struct Need {
  std::function<size_t(const plan::Plan& plan)> bytes;
  int ranks;  // that share the memory
  size_t available;
  std::string where;
};

void require(const PreparedRun& prepared, const Need& need) {
  if (need.bytes(prepared.plan) <= need.available) return;
  const int64_t lanes = prepared.config.train.lanes;
  const auto needed_with = [&](int64_t batch) {
    return need.bytes(plan_for_batch(prepared, batch));
  };
  // The largest multiple of the lanes that fits, by bisection: the need grows with the batch.
  int64_t fits = 0, fails = prepared.config.train.global_batch / lanes;
  while (fails - fits > 1) {
    const int64_t middle = fits + (fails - fits) / 2;
    (needed_with(middle * lanes) <= need.available ? fits : fails) = middle;
  }
  const std::string advice = fits > 0 ? fmt::format("train.global_batch {} would fit", fits * lanes)
                                      : fmt::format("even train.global_batch {} needs {:.2f} GiB",
                                                    lanes,
                                                    static_cast<double>(needed_with(lanes)) / kGiB);
  throw MemoryError(
      "the run needs {:.2f} GiB {} ({} rank{}), {:.2f} GiB are free; {}; `lockstep plan` lists "
      "the parts",
      static_cast<double>(need.bytes(prepared.plan)) / kGiB,
      need.where,
      need.ranks,
      plural(need.ranks),
      static_cast<double>(need.available) / kGiB,
      advice);
}

}  // namespace

bool lacks_memory_for_snapshot(const PreparedRun& prepared,
                               int local_ranks,
                               const MemoryLimits& limits) {
  return prepared.plan.memory.has_snapshot() &&
         prepared.plan.memory.host_bytes(local_ranks) > limits.host_bytes;
}

void require_memory(const PreparedRun& prepared, int local_ranks, const MemoryLimits& limits) {
  require(prepared,
          {[](const plan::Plan& plan) { return plan.memory.device_bytes(); },
           1,
           limits.device_bytes,
           "on " + limits.device});
  require(prepared,
          {[=](const plan::Plan& plan) { return plan.memory.host_bytes(local_ranks); },
           local_ranks,
           limits.host_bytes,
           "on " + limits.host});
}

}  // namespace lockstep::run
