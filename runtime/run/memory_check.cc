#include "runtime/run/memory_check.h"

#include <functional>

#include "runtime/base/error.h"

namespace lockstep {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

// What a plan needs of one kind of memory, and what there is.
struct Need {
  std::function<size_t(const Plan& plan)> bytes;
  int ranks;  // that share it
  size_t available;
  std::string where;
};

// Only the graphs and the plan depend on the batch: plan again, halving.
void check_need(const Assembly& assembly, const Need& need) {
  if (need.bytes(assembly.plan) <= need.available) return;
  const int64_t lanes = assembly.config.train.lanes;
  const auto needed_with = [&](int64_t batch) {
    return need.bytes(program_for(assembly, batch).plan);
  };
  // The largest multiple of the lanes that fits, by bisection: the need grows with the batch.
  int64_t fits = 0, fails = assembly.config.train.global_batch / lanes;
  while (fails - fits > 1) {
    const int64_t middle = fits + (fails - fits) / 2;
    (needed_with(middle * lanes) <= need.available ? fits : fails) = middle;
  }
  const std::string advice = fits > 0 ? fmt::format("train.global_batch {} would fit", fits * lanes)
                                      : fmt::format("even train.global_batch {} needs {:.2f} GiB",
                                                    lanes,
                                                    static_cast<double>(needed_with(lanes)) / kGiB);
  throw MemoryError(
      "the run needs {:.2f} GiB {} ({} rank{}), {:.2f} GiB are free; {}; `lockstep plan` shows "
      "what for",
      static_cast<double>(need.bytes(assembly.plan)) / kGiB,
      need.where,
      need.ranks,
      need.ranks == 1 ? "" : "s",
      static_cast<double>(need.available) / kGiB,
      advice);
}

}  // namespace

bool lacks_memory_for_snapshot(const Assembly& assembly,
                               int local_ranks,
                               const MemoryLimits& limits) {
  return assembly.plan.has_snapshot() && assembly.plan.host_bytes(local_ranks) > limits.host_bytes;
}

void check_memory(const Assembly& assembly, int local_ranks, const MemoryLimits& limits) {
  check_need(assembly,
             {[](const Plan& plan) { return plan.device_bytes(); },
              1,
              limits.device_bytes,
              "on " + limits.device});
  check_need(assembly,
             {[=](const Plan& plan) { return plan.host_bytes(local_ranks); },
              local_ranks,
              limits.host_bytes,
              "on " + limits.host});
}

}  // namespace lockstep
