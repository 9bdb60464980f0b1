#include "runtime/train/optimizer.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace lockstep {

std::string optimizer_name(const OptimizerConfig& config) {
  if (std::holds_alternative<SgdConfig>(config.kind)) return "sgd";
  return std::get<AdamConfig>(config.kind).decoupled ? "adamw" : "adam";
}

std::vector<std::string> moment_names(const OptimizerConfig& config) {
  if (std::holds_alternative<AdamConfig>(config.kind)) return {"exp_avg", "exp_avg_sq"};
  if (std::get<SgdConfig>(config.kind).momentum > 0) return {"momentum_buffer"};
  return {};
}

namespace {

// All running statistics of a model have one momentum.
MovingAverageConstants moving_average(const ParameterLayout& layout) {
  float momentum = 0;
  for (const ParameterSlot& slot : layout.slots) {
    if (slot.running_momentum == 0) continue;
    LOCKSTEP_CHECK(momentum == 0 || momentum == slot.running_momentum, "{} ", slot.name);
    momentum = slot.running_momentum;
  }
  return {.keep = static_cast<float>(1 - static_cast<double>(momentum)),
          .weight = static_cast<float>(static_cast<double>(momentum) / layout.lanes)};
}

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& config,
                     const ParameterLayout& layout,
                     std::vector<Range> owned,
                     Backend& backend,
                     const OptimizerMemory& memory)
    : config_(config),
      owned_(std::move(owned)),
      backend_(backend),
      memory_(memory),
      moments_(moment_names(config).size()),
      constants_(backend.host_array<OptimizerConstants>(kGroups)) {
  prepare(0, 0, 1);  // the kind of each is known from here on
  constants_[kStatistics] = moving_average(layout);
  // Parameters by place in the flat buffer; padding belongs to the parameter before it.
  std::vector<const ParameterSlot*> slots;
  for (const ParameterSlot& slot : layout.slots) slots.push_back(&slot);
  std::sort(slots.begin(), slots.end(), [](const auto* a, const auto* b) {
    return a->offset < b->offset;
  });

  for (const Range& range : owned_) {
    local_offsets_.push_back(owned_elements_);
    for (size_t i = 0; i < slots.size(); ++i) {
      const int64_t slot_end = i + 1 < slots.size() ? slots[i + 1]->offset : layout.elements;
      const Range part = {std::max(range.begin, slots[i]->offset), std::min(range.end, slot_end)};
      if (part.begin >= part.end) continue;
      const Group group = group_of(*slots[i]);
      const int64_t local = owned_elements_ + part.begin - range.begin;
      const bool joins = !segments_.empty() && segments_.back().group == group &&
                         segments_.back().range.end == part.begin && part.begin > range.begin;
      if (joins) {
        segments_.back().range.end = part.end;
      } else {
        segments_.push_back({part, local, group});
      }
    }
    owned_elements_ += range.size();
  }
  slices_.resize(segments_.size());
}

Optimizer::Group Optimizer::group_of(const ParameterSlot& slot) const {
  if (slot.running_momentum > 0) return kStatistics;
  return slot.decay || config_.decay_bias_and_norm ? kDecayed : kPlain;
}

int64_t Optimizer::moment_offset(size_t index, size_t range) const {
  return static_cast<int64_t>(index) * owned_elements_ + local_offsets_[range];
}

OptimizerConstants Optimizer::constants_for(bool decay,
                                            double lr,
                                            double gradient_scale,
                                            int64_t step) const {
  if (const auto* sgd = std::get_if<SgdConfig>(&config_.kind))
    return SgdConstants{.lr = static_cast<float>(lr),
                        .momentum = sgd->momentum,
                        .weight_decay = decay ? sgd->weight_decay : 0,
                        .grad_scale = static_cast<float>(gradient_scale),
                        .nesterov = sgd->nesterov};
  const auto& adam = std::get<AdamConfig>(config_.kind);
  return adam_constants(lr,
                        adam.beta1,
                        adam.beta2,
                        adam.epsilon,
                        decay ? adam.weight_decay : 0,
                        adam.decoupled,
                        gradient_scale,
                        step);
}

void Optimizer::prepare(double lr, double gradient_scale, int64_t step) {
  constants_[kPlain] = constants_for(false, lr, gradient_scale, step);
  constants_[kDecayed] = constants_for(true, lr, gradient_scale, step);
}

OptimizerSlice Optimizer::slice_of(const Segment& segment, const float* gradients) const {
  OptimizerSlice slice{};
  slice.group = segment.group;
  slice.constants = constants_[slice.group];
  slice.elements = segment.range.size();
  slice.gradients = gradients + segment.range.begin;
  std::byte* const parameters =
      memory_.parameters + static_cast<size_t>(segment.range.begin) * size_of(memory_.compute);
  if (memory_.compute == DType::kF32) {
    slice.parameters = reinterpret_cast<float*>(parameters);
  } else {
    slice.parameters = memory_.masters + segment.local;
    slice.stored = parameters;
    slice.stored_dtype = memory_.compute;
  }
  if (segment.group == kStatistics) return slice;
  if (moments_ > 0) slice.first_moment = memory_.moments + segment.local;
  if (moments_ > 1) slice.second_moment = memory_.moments + owned_elements_ + segment.local;
  return slice;
}

void Optimizer::update(const float* gradients) {
  for (size_t i = 0; i < segments_.size(); ++i) slices_[i] = slice_of(segments_[i], gradients);
  backend_.update(constants_, slices_);
}

}  // namespace lockstep
