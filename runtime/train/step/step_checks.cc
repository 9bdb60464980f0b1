#include "runtime/train/step/step_checks.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/train/gather_values.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep::train {
namespace {

constexpr double kShare = 0.005;  // of a step's time that checks of transfers may take on average
// steps since the start until checks are timed: caches and clocks are warm
constexpr int64_t kTimedStep = 3;
constexpr int64_t kEveryOnDevice = 64;  // the host cannot time checks that run on a device

}  // namespace

StepChecks::StepChecks(const RunContext& context, const RunMemory& memory, StateChecksums* state)
    : context_(context), state_(state) {
  const plan::Plan& plan = context.plan;
  if (state == nullptr) return;
  every_ = context.config.guard.every;
  if (every_ == 0 && context.backend.ops().separate_memory) every_ = kEveryOnDevice;
  if (context.communicator.size() == 1) return;
  if (context.config.comm.order == CommConfig::Order::kTree && !plan.traffic.power_sgd)
    sent_.emplace(context.communicator,
                  context.backend,
                  plan.sharding.topology,
                  plan.layout.buckets,
                  plan.layout.begins());
  if (plan.sharding.shards_optimizer() &&
      (!plan.sharding.shares_parameters() || plan.sharding.topology.nodes > 1))
    gathered_.emplace(context, memory, *state);
}

void StepChecks::begin() {
  steps_ = 0;
  if (state_ != nullptr) state_->begin();
}

void StepChecks::begin_step(int64_t done) {
  ++steps_;
  const bool checksums_memory = state_ != nullptr && !state_->by_updates();
  due_ = (sent_ || gathered_ || checksums_memory) &&
         (every_ > 0 ? done % every_ == 0 : steps_ == kTimedStep);
  if (due_ && checksums_memory) state_->begin();
}

bool StepChecks::note(const std::optional<StateChecksums::Damage>& damage) {
  found_in_state_.clear();
  if (!damage) return true;
  const size_t slot = state_->pieces()[damage->piece].slot;
  found_in_state_ = fmt::format("the {} of {} changed by itself",
                                name_of(damage->array),
                                context_.plan.layout.slots[slot].name);
  return false;
}

bool StepChecks::examine(double step_ms) {
  if (state_ == nullptr) return true;
  found_in_transfers_.clear();
  const bool intact = examine_state();
  if (!due_) return intact;
  if (every_ == 0) choose_interval(step_ms);
  examine_transfers();
  return intact && found_in_transfers_.empty();
}

bool StepChecks::examine_state() {
  if (state_->by_updates()) return note(state_->examine());
  return !due_ || note(state_->examine_memory());
}

std::optional<uint64_t> StepChecks::digest() const {
  if (state_ == nullptr || !(state_->by_updates() || due_)) return std::nullopt;
  return state_->digest();
}

bool StepChecks::examine_memory() {
  if (state_ == nullptr || !(state_->by_updates() || due_)) return true;
  return note(state_->examine_memory());
}

void StepChecks::examine_transfers() {
  const plan::ParameterLayout& layout = context_.plan.layout;
  if (gathered_) {
    if (const std::optional<GatheredChecksums::Damage> damage = gathered_->compare())
      found_in_transfers_ = fmt::format("its copy of the parameter {} differs from that of rank {}",
                                        layout.slots[damage->slot].name,
                                        damage->owner);
  }
  if (sent_) {
    const std::optional<collectives::TransferChecksums::Damage> damage = sent_->compare();
    if (damage && found_in_transfers_.empty())
      found_in_transfers_ =
          fmt::format("the gradient of {} received from rank {} differs from what that rank sent",
                      layout.slots[layout.slot_at(damage->flat)].name,
                      damage->from);
  }
}

// Uses the slowest check and the fastest step of all ranks.
void StepChecks::choose_interval(double step_ms) {
  struct Times {
    double check_ms, step_ms;
  };
  const double check_ms = (sent_ ? sent_->take_ms() : 0) + (gathered_ ? gathered_->take_ms() : 0);
  Times worst = {check_ms, step_ms - check_ms};
  for (const Times& times : gather_values(context_.communicator, worst))
    worst = {std::max(worst.check_ms, times.check_ms), std::min(worst.step_ms, times.step_ms)};
  const double steps = worst.check_ms / (kShare * std::max(worst.step_ms, 1e-3));
  every_ = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(steps)));
  if (context_.communicator.rank() == 0)
    log_info("guard: transfers between ranks are checked every {} step{}", every_, plural(every_));
}

std::string StepChecks::name_of(StateArray array) const {
  const std::vector<std::string> moments = moment_names(context_.config.optimizer);
  switch (array) {
    case StateArray::kGradient: return "summed gradient";
    case StateArray::kWeight:
      return context_.plan.layout.compute == DType::kF32 ? "parameter" : "master weight";
    case StateArray::kFirstMoment: return "moment " + moments.at(0);
    case StateArray::kSecondMoment: return "moment " + moments.at(1);
    case StateArray::kThirdMoment: return "moment " + moments.at(2);
    case StateArray::kAverage: return "average";
  }
  return "";
}

}  // namespace lockstep::train
