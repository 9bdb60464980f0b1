#include "runtime/train/guard/weights_agreement.h"

#include <algorithm>
#include <vector>

#include "runtime/train/gather_values.h"

namespace lockstep::train {
namespace {

bool is_running_statistic(const plan::ParameterLayout& layout, const std::string& name) {
  const auto slot = std::ranges::find(layout.slots, name, &plan::ParameterSlot::name);
  return slot != layout.slots.end() && slot->running_momentum > 0;
}

}  // namespace

WeightsAgreement::WeightsAgreement(const RunContext& context,
                                   const RunMemory& memory,
                                   const checkpoint::Saving& saving)
    : context_(context), memory_(memory), weights_hash_(context, memory), saving_(saving) {}

uint64_t WeightsAgreement::hash(int64_t step) {
  const WeightsHash::Result mine = weights_hash_.take();
  const std::vector<uint64_t> replicas = gather_values(context_.communicator, mine.replica);
  for (size_t r = 1; r < replicas.size(); ++r) {
    if (replicas[r] == replicas[0]) continue;
    refuse_damage(
        fmt::format("step {}: the weights of rank {} hash to {:016x}, those of rank 0 to {:016x} "
                    "(bits flipped in memory, on the network or in a processor)",
                    step,
                    r,
                    replicas[r],
                    replicas[0]));
  }
  if (frozen_.value_or(mine.frozen) != mine.frozen)
    refuse_damage(
        fmt::format("step {}: frozen parameters hash to {:016x}, but to {:016x} at the start (bits "
                    "flipped in memory, on the network or in a processor)",
                    step,
                    mine.frozen,
                    *frozen_));
  frozen_ = mine.frozen;
  if (!mine.finite) {
    HostWeights weights(context_, memory_);
    const std::string name = first_not_finite(context_.plan.layout, weights.read());
    const std::string smaller = smaller_updates(context_.config);
    if (is_running_statistic(context_.plan.layout, name))
      refuse_not_finite(step,
                        fmt::format("the running statistic {} is not finite, because the squares "
                                    "of what its norm reads overflow float32",
                                    name),
                        "inputs scaled to about 1, or " + smaller);
    refuse_not_finite(step, fmt::format("the parameter {} is not finite", name), smaller);
  }
  return mine.weights;
}

void WeightsAgreement::refuse_not_finite(int64_t step,
                                         const std::string& what,
                                         const std::string& remedy) const {
  const std::string with = remedy.empty() ? "" : " with " + remedy;
  throw NumericFault(
      context_.config.guard.on_not_finite,
      saving_.good_step()
          ? fmt::format("step {}: {}; the checkpoint of step {} is good: resume from it{}",
                        step,
                        what,
                        *saving_.good_step(),
                        with)
          : fmt::format("step {}: {}; no checkpoint has been written yet: start again{}",
                        step,
                        what,
                        with));
}

void WeightsAgreement::refuse_damage(const std::string& what) const {
  throw NumericFault(
      context_.config.guard.on_damage,
      saving_.good_step()
          ? fmt::format(
                "{}; the checkpoint of step {} is good: resume from it", what, *saving_.good_step())
          : what + "; no checkpoint has been written yet: start again");
}

}  // namespace lockstep::train
