#include "runtime/train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"

namespace lockstep {

std::string optimizer_name(const OptimizerConfig& config) {
  return name_of(config.kind);
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

bool is_lamb(const OptimizerConfig& config) {
  return std::holds_alternative<LambConfig>(config.kind);
}

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

float* FlatWeights::floats(int64_t flat, int64_t local) const {
  if (compute != DType::kF32) return masters + local;
  return reinterpret_cast<float*>(parameters) + (packed ? local : flat);
}

OptimizerSlice FlatWeights::slice(const Range& range, int64_t local) const {
  OptimizerSlice slice;
  slice.elements = range.size();
  slice.parameters = floats(range.begin, local);
  if (compute == DType::kF32) return slice;
  slice.stored = parameters + static_cast<size_t>(packed ? local : range.begin) * size_of(compute);
  slice.stored_dtype = compute;
  return slice;
}

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
      constants_(backend.host_array<OptimizerConstants>(groups(config, layout))) {
  LOCKSTEP_CHECK(is_layer_wise(config) == (memory.norms != nullptr));
  if (is_lamb(config)) direction_constants_ = backend.host_array<OptimizerConstants>(2);
  prepare(0, 0, 1);  // the kind of each is known from here on
  constants_[kStatistics] = moving_average(layout);
  prepare_updates(cut_segments(layout));
}

size_t Optimizer::groups(const OptimizerConfig& config, const ParameterLayout& layout) {
  return kGroups + adapted_slots(config, layout).size();
}

std::vector<Optimizer::Segment> Optimizer::cut_segments(const ParameterLayout& layout) {
  // Parameters by place in the flat buffer; padding belongs to the parameter before it.
  std::vector<size_t> slots(layout.slots.size());
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = i;
  const auto offset_of = [&](size_t slot) { return layout.slots[slot].offset; };
  std::sort(
      slots.begin(), slots.end(), [&](size_t a, size_t b) { return offset_of(a) < offset_of(b); });

  std::vector<Segment> segments;
  for (const Range& range : owned_) {
    local_offsets_.push_back(owned_elements_);
    for (size_t i = 0; i < slots.size(); ++i) {
      const int64_t slot_end = i + 1 < slots.size() ? offset_of(slots[i + 1]) : layout.elements;
      const Range part = {std::max(range.begin, offset_of(slots[i])),
                          std::min(range.end, slot_end)};
      if (part.begin >= part.end) continue;
      const size_t group = group_of(layout, slots[i]);
      const int64_t local = owned_elements_ + part.begin - range.begin;
      const bool joins = !segments.empty() && segments.back().group == group &&
                         segments.back().range.end == part.begin && part.begin > range.begin;
      if (joins) {
        segments.back().range.end = part.end;
      } else {
        segments.push_back({part, local, group});
      }
    }
    owned_elements_ += range.size();
  }
  return segments;
}

void Optimizer::prepare_updates(const std::vector<Segment>& segments) {
  const bool lamb = is_lamb(config_);  // whose moments move when the directions are found
  std::vector<OptimizerSlice> slices, directions;
  for (const Segment& segment : segments) {
    const bool kept = segment.group != kStatistics;
    slices.push_back(slice_of(segment, kept && !lamb ? moments_ : 0));
    slices.back().group = segment.group;
    if (!kept || !lamb) continue;
    directions.push_back(slice_of(segment, moments_));
    directions.back().group = segment.group == kPlain ? kPlain : kDecayed;
  }
  update_ = backend_.flat_update(constants_, std::move(slices));
  if (lamb) directions_ = backend_.flat_update(direction_constants_, std::move(directions));
  if (memory_.norms != nullptr) measuring_work_ = backend_.repeated_work();
}

OptimizerSlice Optimizer::slice_of(const Segment& segment, size_t moments) const {
  OptimizerSlice slice = memory_.weights.slice(segment.range, segment.local);
  slice.gradients = memory_.gradients.at(segment.range.begin, segment.local);
  if (moments > 0) slice.first_moment = memory_.moments + segment.local;
  if (moments > 1) slice.second_moment = memory_.moments + owned_elements_ + segment.local;
  return slice;
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
  const auto constants = [&](const auto& adam, bool decoupled) {
    return adam_constants(lr,
                          adam.beta1,
                          adam.beta2,
                          adam.epsilon,
                          decay ? adam.weight_decay : 0,
                          decoupled,
                          gradient_scale,
                          step);
  };
  if (const auto* adam = std::get_if<AdamConfig>(&config_.kind)) return constants(*adam, false);
  return constants(std::get<AdamwConfig>(config_.kind), true);
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

OptimizerConstants Optimizer::direction_constants(bool decay) const {
  const auto& lamb = std::get<LambConfig>(config_.kind);
  return lamb_constants(lamb.beta1,
                        lamb.beta2,
                        lamb.epsilon,
                        decay ? lamb.weight_decay : 0,
                        prepared_.gradient_scale,
                        prepared_.step);
}

void Optimizer::prepare(double lr, double gradient_scale, int64_t step) {
  if (is_layer_wise(config_)) {
    prepared_ = {lr, gradient_scale, step};
    constants_[kPlain] = layer_constants(false, 1);
    for (size_t g = kDecayed; g < constants_.size(); ++g)
      if (g != kStatistics) constants_[g] = layer_constants(true, 1);
    if (direction_constants_.empty()) return;
    direction_constants_[kPlain] = direction_constants(false);
    direction_constants_[kDecayed] = direction_constants(true);
    return;
  }
  constants_[kPlain] = constants_for(false, lr, gradient_scale, step);
  constants_[kDecayed] = constants_for(true, lr, gradient_scale, step);
}

void Optimizer::adapt() {
  if (memory_.norms == nullptr) return;
  measuring_work_->run([this] { measure(); });
  const std::span<const TensorNorms::Squares> squares = memory_.norms->sum();
  for (size_t i = 0; i < adapted_.size(); ++i)
    constants_[kGroups + i] = layer_constants(true, trust_ratio(squares[i]));
}

// Queues what finds the norms of the weights and of what they move along.
void Optimizer::measure() {
  if (directions_) directions_->run();
  for (const TensorNorms::Piece& piece : memory_.norms->owned())
    memory_.norms->measure(piece,
                           memory_.weights.floats(piece.flat, piece.local),
                           memory_.gradients.at(piece.flat, piece.local));
}

double Optimizer::trust_ratio(const TensorNorms::Squares& squares) const {
  const double weights = std::sqrt(squares.parameters), directions = std::sqrt(squares.directions);
  if (weights == 0 || directions == 0) return 1;
  const auto* lars = std::get_if<LarsConfig>(&config_.kind);
  if (lars == nullptr) return weights / directions;
  // LARS measures the gradient itself, before it is scaled.
  const double gradient = directions * std::abs(prepared_.gradient_scale);
  return lars->trust_coefficient * weights /
         (gradient + lars->weight_decay * weights + lars->epsilon);
}

}  // namespace lockstep
