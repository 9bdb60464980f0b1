#include "runtime/train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"

namespace lockstep {

std::string optimizer_name(const OptimizerConfig& config) {
  if (std::holds_alternative<SgdConfig>(config.kind)) return "sgd";
  if (std::holds_alternative<LarsConfig>(config.kind)) return "lars";
  if (std::holds_alternative<LambConfig>(config.kind)) return "lamb";
  return std::get<AdamConfig>(config.kind).decoupled ? "adamw" : "adam";
}

std::vector<std::string> moment_names(const OptimizerConfig& config) {
  const auto* sgd = std::get_if<SgdConfig>(&config.kind);
  const auto* lars = std::get_if<LarsConfig>(&config.kind);
  if (sgd == nullptr && lars == nullptr) return {"exp_avg", "exp_avg_sq"};
  const float momentum = sgd != nullptr ? sgd->momentum : lars->momentum;
  if (momentum > 0) return {"momentum_buffer"};
  return {};
}

bool is_layer_wise(const OptimizerConfig& config) {
  return std::holds_alternative<LarsConfig>(config.kind) ||
         std::holds_alternative<LambConfig>(config.kind);
}

namespace {

bool is_decayed(const OptimizerConfig& config, const ParameterSlot& slot) {
  return slot.running_momentum == 0 && (slot.decay || config.decay_bias_and_norm);
}

}  // namespace

std::vector<size_t> adapted_slots(const OptimizerConfig& config, const ParameterLayout& layout) {
  std::vector<size_t> slots;
  for (size_t i = 0; i < layout.slots.size() && is_layer_wise(config); ++i) {
    if (is_decayed(config, layout.slots[i])) slots.push_back(i);
  }
  return slots;
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
      adapted_(adapted_slots(config, layout)),
      constants_(backend.host_array<OptimizerConstants>(kGroups + adapted_.size())) {
  LOCKSTEP_CHECK(is_layer_wise(config) == (memory.norms != nullptr));
  prepare(0, 0, 1);  // the kind of each is known from here on
  constants_[kStatistics] = moving_average(layout);
  // Parameters by place in the flat buffer; padding belongs to the parameter before it.
  std::vector<size_t> slots(layout.slots.size());
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = i;
  const auto offset_of = [&](size_t slot) { return layout.slots[slot].offset; };
  std::sort(
      slots.begin(), slots.end(), [&](size_t a, size_t b) { return offset_of(a) < offset_of(b); });

  for (const Range& range : owned_) {
    local_offsets_.push_back(owned_elements_);
    for (size_t i = 0; i < slots.size(); ++i) {
      const int64_t slot_end = i + 1 < slots.size() ? offset_of(slots[i + 1]) : layout.elements;
      const Range part = {std::max(range.begin, offset_of(slots[i])),
                          std::min(range.end, slot_end)};
      if (part.begin >= part.end) continue;
      const size_t group = group_of(layout, slots[i]);
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
  lamb_slices_.reserve(segments_.size());
}

size_t Optimizer::group_of(const ParameterLayout& layout, size_t slot) const {
  if (layout.slots[slot].running_momentum > 0) return kStatistics;
  if (!is_decayed(config_, layout.slots[slot])) return kPlain;
  const auto adapted = std::find(adapted_.begin(), adapted_.end(), slot);
  if (adapted == adapted_.end()) return kDecayed;
  return kGroups + static_cast<size_t>(adapted - adapted_.begin());
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

// `trust` multiplies the rate. LARS moves its moment by the whole step, rate included, as the paper
// has it: so the kernel of SGD runs with a rate of 1. LAMB's directions take the rate alone.
OptimizerConstants Optimizer::layer_constants(bool decay, double trust) const {
  const double rate = prepared_.lr * trust;
  if (const auto* lars = std::get_if<LarsConfig>(&config_.kind))
    return SgdConstants{.lr = 1,
                        .momentum = lars->momentum,
                        .weight_decay = decay ? static_cast<float>(rate * lars->weight_decay) : 0,
                        .grad_scale = static_cast<float>(rate * prepared_.gradient_scale),
                        .nesterov = false};
  return SgdConstants{.lr = static_cast<float>(rate),
                      .momentum = 0,
                      .weight_decay = 0,
                      .grad_scale = 1,
                      .nesterov = false};
}

void Optimizer::prepare(double lr, double gradient_scale, int64_t step) {
  if (is_layer_wise(config_)) {
    prepared_ = {lr, gradient_scale, step};
    constants_[kPlain] = layer_constants(false, 1);
    for (size_t g = kDecayed; g < constants_.size(); ++g)
      if (g != kStatistics) constants_[g] = layer_constants(true, 1);
    return;
  }
  constants_[kPlain] = constants_for(false, lr, gradient_scale, step);
  constants_[kDecayed] = constants_for(true, lr, gradient_scale, step);
}

float* Optimizer::weights_at(int64_t flat, int64_t local) const {
  return memory_.compute == DType::kF32 ? reinterpret_cast<float*>(memory_.parameters) + flat
                                        : memory_.masters + local;
}

void Optimizer::adapt(float* gradients) {
  if (memory_.norms == nullptr) return;
  if (std::holds_alternative<LambConfig>(config_.kind)) find_directions(gradients);
  const std::vector<LayerNorms::Piece>& pieces = memory_.norms->owned();
  for (size_t i = 0; i < pieces.size(); ++i)
    memory_.norms->measure(
        i, weights_at(pieces[i].flat, pieces[i].local), gradients + pieces[i].flat);
  const std::span<const LayerNorms::Squares> squares = memory_.norms->sum();
  for (size_t i = 0; i < adapted_.size(); ++i)
    constants_[kGroups + i] = layer_constants(true, trust_ratio(squares[i]));
}

// Moves the moments, and leaves the directions in the gradients' place.
void Optimizer::find_directions(float* gradients) {
  const auto& lamb = std::get<LambConfig>(config_.kind);
  lamb_slices_.clear();
  for (const Segment& segment : segments_) {
    if (segment.group == kStatistics) continue;
    lamb_slices_.push_back(
        {.constants = lamb_constants(lamb.beta1,
                                     lamb.beta2,
                                     lamb.epsilon,
                                     segment.group == kPlain ? 0 : lamb.weight_decay,
                                     prepared_.gradient_scale,
                                     prepared_.step),
         .elements = segment.range.size(),
         .parameters = weights_at(segment.range.begin, segment.local),
         .gradients = gradients + segment.range.begin,
         .first_moment = memory_.moments + segment.local,
         .second_moment = memory_.moments + owned_elements_ + segment.local});
  }
  backend_.lamb_directions(lamb_slices_);
}

double Optimizer::trust_ratio(const LayerNorms::Squares& squares) const {
  const double weights = std::sqrt(squares.parameters), directions = std::sqrt(squares.directions);
  if (weights == 0 || directions == 0) return 1;
  const auto* lars = std::get_if<LarsConfig>(&config_.kind);
  if (lars == nullptr) return weights / directions;
  // LARS measures the gradient itself, before it is scaled.
  const double gradient = directions * std::abs(prepared_.gradient_scale);
  return lars->trust_coefficient * weights /
         (gradient + lars->weight_decay * weights + lars->epsilon);
}

OptimizerSlice Optimizer::slice_of(const Segment& segment, const float* gradients) const {
  OptimizerSlice slice{};
  slice.group = segment.group;
  slice.constants = constants_[slice.group];
  slice.elements = segment.range.size();
  slice.gradients = gradients + segment.range.begin;
  slice.parameters = weights_at(segment.range.begin, segment.local);
  if (memory_.compute != DType::kF32) {
    slice.stored =
        memory_.parameters + static_cast<size_t>(segment.range.begin) * size_of(memory_.compute);
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
