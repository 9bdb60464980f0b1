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

Optimizer::Optimizer(const OptimizerConfig& config,
                     const ParameterLayout& layout,
                     std::vector<Range> owned,
                     Backend& backend,
                     float* moments)
    : config_(config), owned_(std::move(owned)), backend_(backend), moments_(moments) {
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
      const bool decay = slots[i]->decay || config.decay_bias_and_norm;
      const int64_t local = owned_elements_ + part.begin - range.begin;
      const bool joins = !segments_.empty() && segments_.back().decay == decay &&
                         segments_.back().range.end == part.begin && part.begin > range.begin;
      if (joins) {
        segments_.back().range.end = part.end;
      } else {
        segments_.push_back({part, local, decay});
      }
    }
    owned_elements_ += range.size();
  }
}

int64_t Optimizer::moment_offset(size_t index, size_t range) const {
  return static_cast<int64_t>(index) * owned_elements_ + local_offsets_[range];
}

void Optimizer::update(
    float* parameters, const float* gradients, double lr, double gradient_scale, int64_t step) {
  for (const Segment& segment : segments_) {
    OptimizerSlice slice{};
    slice.elements = segment.range.size();
    slice.parameters = parameters + segment.range.begin;
    slice.gradients = gradients + segment.range.begin;
    if (const auto* sgd = std::get_if<SgdConfig>(&config_.kind)) {
      slice.constants = SgdConstants{.lr = static_cast<float>(lr),
                                     .momentum = sgd->momentum,
                                     .weight_decay = segment.decay ? sgd->weight_decay : 0,
                                     .grad_scale = static_cast<float>(gradient_scale),
                                     .nesterov = sgd->nesterov};
      if (sgd->momentum > 0) slice.first_moment = moments_ + segment.local;
    } else {
      const auto& adam = std::get<AdamConfig>(config_.kind);
      slice.constants = adam_constants(lr,
                                       adam.beta1,
                                       adam.beta2,
                                       adam.epsilon,
                                       segment.decay ? adam.weight_decay : 0,
                                       adam.decoupled,
                                       gradient_scale,
                                       step);
      slice.first_moment = moments_ + segment.local;
      slice.second_moment = moments_ + owned_elements_ + segment.local;
    }
    backend_.update(slice);
  }
}

}  // namespace lockstep
