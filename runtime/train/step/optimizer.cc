#include "runtime/train/step/optimizer.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"

namespace lockstep {

namespace {

// The update of an elementwise optimizer with this config; none for a layer-wise one.
template <typename Config>
struct UpdateOf {
  using Type = void;
};
#define LOCKSTEP_UPDATE_OF(Config, Update) \
  template <>                              \
  struct UpdateOf<Config> {                \
    using Type = Update;                   \
  };
LOCKSTEP_OPTIMIZERS(LOCKSTEP_UPDATE_OF)
#undef LOCKSTEP_UPDATE_OF

template <typename Config>
constexpr bool kElementwise = !std::is_void_v<typename UpdateOf<Config>::Type>;

// Calls `elementwise` with the config and an update's type, or `layer_wise` with the config.
template <typename Elementwise, typename LayerWise>
auto by_kind(const OptimizerConfig& config, Elementwise elementwise, LayerWise layer_wise) {
  return std::visit(
      [&]<typename Config>(const Config& kind) {
        if constexpr (kElementwise<Config>) {
          return elementwise.template operator()<typename UpdateOf<Config>::Type>(kind);
        } else {
          return layer_wise(kind);
        }
      },
      config.kind);
}

std::vector<std::string> layer_wise_moments(const LarsConfig& lars) {
  if (lars.momentum > 0) return {"momentum_buffer"};
  return {};
}
std::vector<std::string> layer_wise_moments(const LambConfig&) { return {"exp_avg", "exp_avg_sq"}; }

std::vector<std::string> layer_wise_moments(const MuonConfig&) { return {"momentum_buffer"}; }

// The second half of a layer-wise step, which follows once each tensor's rate is known: SGD.
// `trust` multiplies the rate.
//
// LARS moves its moment by the whole step, rate included, as the paper has it: so SGD runs with a
// rate of 1.
SgdUpdate layer_wise_update(const LarsConfig& lars, const UpdateStep& step, double trust) {
  const double rate = step.lr * trust;
  return {.lr = 1,
          .momentum = lars.momentum,
          .weight_decay = static_cast<float>(rate * step.decay_of(lars.weight_decay)),
          .grad_scale = static_cast<float>(rate * step.gradient_scale),
          .nesterov = false};
}
// LAMB's directions take the rate alone.
SgdUpdate layer_wise_update(const LambConfig&, const UpdateStep& step, double trust) {
  return {.lr = static_cast<float>(step.lr * trust),
          .momentum = 0,
          .weight_decay = 0,
          .grad_scale = 1,
          .nesterov = false};
}

SgdUpdate layer_wise_update(const MuonConfig&, const UpdateStep&, double) { return {}; }

}  // namespace

std::vector<std::string> moment_names(const OptimizerConfig& config) {
  return by_kind(
      config,
      []<typename Update>(const auto& kind) { return Update::moment_names(kind); },
      [](const auto& kind) { return layer_wise_moments(kind); });
}

bool is_layer_wise(const OptimizerConfig& config) {
  return by_kind(
      config, []<typename Update>(const auto&) { return false; }, [](const auto&) { return true; });
}

namespace {

bool is_lamb(const OptimizerConfig& config) {
  return std::holds_alternative<LambConfig>(config.kind);
}

// All running statistics of a model have one momentum.
MovingAverage moving_average(const ParameterLayout& layout) {
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
      groups_(config, layout),
      updates_(backend.host_array<OptimizerUpdate>(groups_.groups.size())) {
  LOCKSTEP_CHECK(is_layer_wise(config) == (memory.norms != nullptr));
  if (is_lamb(config)) direction_updates_ = backend.host_array<OptimizerUpdate>(updates_.size());
  for (size_t g = 0; g < updates_.size(); ++g)
    if (groups_.groups[g].statistics) updates_[g] = moving_average(layout);
  prepare(0, 0, 1);  // the kind of each is known from here on
  cut_pieces(layout);
  prepare_updates();
}

void Optimizer::cut_pieces(const ParameterLayout& layout) {
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
      if (part.begin < part.end)
        pieces_.push_back({slots[i], part, owned_elements_ + part.begin - range.begin});
    }
    owned_elements_ += range.size();
  }
}

void Optimizer::prepare_updates() {
  const bool lamb = is_lamb(config_);  // whose moments move when the directions are found
  std::vector<OptimizerSlice> slices, directions;
  std::vector<size_t> updated, directed;  // pieces
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const size_t group = groups_.of_slot[pieces_[i].slot];
    const bool kept = !groups_.groups[group].statistics;
    slices.push_back(slice_of(pieces_[i], kept && !lamb ? moments_ : 0));
    slices.back().group = group;
    updated.push_back(i);
    if (!kept || !lamb) continue;
    directions.push_back(slice_of(pieces_[i], moments_));
    directions.back().group = group;
    directed.push_back(i);
  }
  if (memory_.summed) {
    state_sums_ = std::make_unique<StateSums>(backend_, pieces_);
    if (lamb) state_sums_->watch(directions, directed, {});
    state_sums_->watch(slices, updated, {});
  }
  update_ = backend_.flat_update(updates_, std::move(slices));
  if (lamb) directions_ = backend_.flat_update(direction_updates_, std::move(directions));
  if (memory_.norms != nullptr) measuring_work_ = backend_.repeated_work();
}

OptimizerSlice Optimizer::slice_of(const StatePiece& piece, size_t moments) const {
  OptimizerSlice slice = memory_.weights.slice(piece.range, piece.local);
  slice.gradients = memory_.gradients.at(piece.range.begin, piece.local);
  if (moments > 0) slice.first_moment = memory_.moments + piece.local;
  if (moments > 1) slice.second_moment = memory_.moments + owned_elements_ + piece.local;
  return slice;
}

int64_t Optimizer::moment_offset(size_t index, size_t range) const {
  return static_cast<int64_t>(index) * owned_elements_ + local_offsets_[range];
}

OptimizerUpdate Optimizer::update_for(const UpdateGroup& group, double trust) const {
  const UpdateStep step = group.of(step_);
  return by_kind(
      config_,
      [&]<typename Update>(const auto& kind) -> OptimizerUpdate {
        return Update::make(kind, step);
      },
      [&](const auto& kind) -> OptimizerUpdate { return layer_wise_update(kind, step, trust); });
}

OptimizerUpdate Optimizer::direction_for(const UpdateGroup& group) const {
  return LambDirection::make(std::get<LambConfig>(config_.kind), group.of(step_));
}

void Optimizer::prepare(double lr, double gradient_scale, int64_t step) {
  step_ = {.lr = lr, .gradient_scale = gradient_scale, .number = step};
  for (size_t g = 0; g < updates_.size(); ++g) {
    const UpdateGroup& group = groups_.groups[g];
    if (!group.statistics) updates_[g] = update_for(group, 1);
    if (!direction_updates_.empty()) direction_updates_[g] = direction_for(group);
  }
}

void Optimizer::adapt() {
  if (memory_.norms == nullptr) return;
  measuring_work_->run([this] { measure(); });
  const std::span<const TensorNorms::Squares> squares = memory_.norms->sum();
  for (size_t g = 0; g < updates_.size(); ++g) {
    const UpdateGroup& group = groups_.groups[g];
    if (group.adapted != UpdateGroup::kNotAdapted)
      updates_[g] = update_for(group, trust_ratio(group, squares[group.adapted]));
  }
}

// Queues what finds the norms of the weights and of what they move along.
void Optimizer::measure() {
  if (directions_) directions_->run();
  for (const TensorNorms::Piece& piece : memory_.norms->owned())
    memory_.norms->measure(piece,
                           memory_.weights.floats(piece.flat, piece.local),
                           memory_.gradients.at(piece.flat, piece.local));
}

double Optimizer::trust_ratio(const UpdateGroup& group, const TensorNorms::Squares& squares) const {
  const double weights = std::sqrt(squares.parameters), directions = std::sqrt(squares.directions);
  if (weights == 0 || directions == 0) return 1;
  const auto* lars = std::get_if<LarsConfig>(&config_.kind);
  if (lars == nullptr) return weights / directions;
  // LARS measures the gradient itself, before it is scaled.
  const double gradient = directions * std::abs(step_.gradient_scale);
  return lars->trust_coefficient * weights /
         (gradient + group.of(step_).decay_of(lars->weight_decay) * weights + lars->epsilon);
}

}  // namespace lockstep
