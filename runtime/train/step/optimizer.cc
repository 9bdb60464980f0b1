#include "runtime/train/step/optimizer.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/moment_block.h"
#include "runtime/checkpoint/format/state.h"
#include "runtime/plan/moment_layout.h"

namespace lockstep::train {

namespace {

// The update of an elementwise optimizer with this config; void for a layer-wise one.
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
// Vectors, and other parameters without rows and columns, have it; for others see FactoredAverages.
std::vector<std::string> layer_wise_moments(const AdafactorConfig&) { return {"variance"}; }
// LAMB's and Muon's. Muon's momentum is stored in place of AdamW's average of gradients, which the
// other parameters have. A matrix has no second moment.
template <typename Config>
std::vector<std::string> layer_wise_moments(const Config&) {
  return {"exp_avg", "exp_avg_sq"};
}

// The elementwise update of a layer-wise optimizer, for a tensor whose trust ratio is known: LARS
// and LAMB end with SGD.
//
// As in the paper, the moment of LARS includes the rate, so SGD runs with a rate of 1.
exec::SgdUpdate layer_wise_update(const LarsConfig& lars,
                                  const exec::UpdateStep& step,
                                  double trust) {
  const double rate = step.lr * trust;
  return {.lr = 1,
          .momentum = lars.momentum,
          .weight_decay = static_cast<float>(rate * step.decay_of(lars.weight_decay)),
          .grad_scale = static_cast<float>(rate * step.gradient_scale),
          .nesterov = false};
}
// LAMB's directions already include weight decay, and are only multiplied by the rate.
exec::SgdUpdate layer_wise_update(const LambConfig&, const exec::UpdateStep& step, double trust) {
  return {.lr = static_cast<float>(step.lr * trust),
          .momentum = 0,
          .weight_decay = 0,
          .grad_scale = 1,
          .nesterov = false};
}

// Muon's parameters that are not matrices.
exec::AdamwUpdate layer_wise_update(const MuonConfig& muon, exec::UpdateStep step, double) {
  step.lr *= muon.adamw_lr_scale;
  return exec::AdamwUpdate::make(muon, step);
}

// Adafactor's weight decay does not follow the size of the step.
exec::MuonStep layer_wise_update(const AdafactorConfig& adafactor,
                                 const exec::UpdateStep& step,
                                 double rate) {
  exec::MuonStep update = exec::MuonStep::make(adafactor, step);
  update.lr = static_cast<float>(rate);
  return update;
}

bool is_lamb(const OptimizerConfig& config) {
  return std::holds_alternative<LambConfig>(config.kind);
}

bool is_adafactor(const OptimizerConfig& config) {
  return std::holds_alternative<AdafactorConfig>(config.kind);
}

bool is_muon(const OptimizerConfig& config) {
  return std::holds_alternative<MuonConfig>(config.kind);
}

// Gradients of a running statistic are summed over the lanes; `weight` turns the sum into their
// mean.
exec::MovingAverage moving_average(const UpdateGroup& group, int lanes) {
  const auto momentum = static_cast<double>(group.running_momentum);
  return {.keep = static_cast<float>(1 - momentum), .weight = static_cast<float>(momentum / lanes)};
}

int64_t elements_of(const std::vector<Optimizer::KeptRange>& kept) {
  return kept.empty() ? 0 : kept.back().local + kept.back().range.size();
}

}  // namespace

std::vector<std::string> moment_names(const OptimizerConfig& config) {
  return by_kind(
      config,
      []<typename Update>(const auto& kind) { return Update::moment_names(kind); },
      [](const auto& kind) { return layer_wise_moments(kind); });
}

std::vector<std::string> saved_moments(const OptimizerConfig& config) {
  std::vector<std::string> names = moment_names(config);
  if (is_adafactor(config))
    names.insert(names.end(), {checkpoint::kRowAverages, checkpoint::kColumnAverages});
  return names;
}

std::string squares_moment(const OptimizerConfig& config) {
  const std::vector<std::string> names = moment_names(config);
  const auto found = std::ranges::find_if(names, is_moment_of_squares);
  return found == names.end() ? "" : *found;
}

uint8_t square_moments(const OptimizerConfig& config) {
  const std::vector<std::string> names = moment_names(config);
  unsigned bits = 0;
  for (size_t m = 0; m < names.size(); ++m)
    if (is_moment_of_squares(names[m])) bits |= 1u << m;
  return static_cast<uint8_t>(bits);
}

float initial_moment(const OptimizerConfig& config) {
  const auto* adagrad = std::get_if<AdagradConfig>(&config.kind);
  return adagrad == nullptr ? 0 : adagrad->initial_accumulator;
}

DType moment_dtype(const OptimizerConfig& config) {
  switch (config.moments) {
    case OptimizerConfig::MomentType::kFp32: return DType::kF32;
    case OptimizerConfig::MomentType::kBf16: return DType::kBF16;
    case OptimizerConfig::MomentType::kInt8: return DType::kU8;
  }
  return DType::kF32;
}

bool is_layer_wise(const OptimizerConfig& config) {
  return by_kind(
             config,
             []<typename Update>(const auto&) { return false; },
             [](const auto&) { return true; }) &&
         !is_muon(config);
}

float* FlatWeights::floats(int64_t flat, int64_t local) const {
  if (compute != DType::kF32) return masters + local;
  return reinterpret_cast<float*>(parameters) + (packed ? local : flat);
}

exec::OptimizerSlice FlatWeights::slice(const collectives::Range& range, int64_t local) const {
  exec::OptimizerSlice slice;
  slice.elements = range.size();
  slice.parameters = floats(range.begin, local);
  if (compute == DType::kF32) return slice;
  slice.stored = parameters + static_cast<size_t>(packed ? local : range.begin) * size_of(compute);
  slice.stored_dtype = compute;
  return slice;
}

Optimizer::Optimizer(const OptimizerConfig& config,
                     const plan::ParameterLayout& layout,
                     std::vector<collectives::Range> owned,
                     exec::Backend& backend,
                     const OptimizerMemory& memory)
    : config_(config),
      owned_(std::move(owned)),
      backend_(backend),
      memory_(memory),
      moments_(moment_names(config).size()),
      moment_dtype_(lockstep::train::moment_dtype(config)),
      square_moments_(lockstep::train::square_moments(config)),
      groups_(config, layout),
      updates_(backend.host_array<exec::OptimizerUpdate>(groups_.groups.size())) {
  LOCKSTEP_CHECK(is_layer_wise(config) == (memory.norms != nullptr));
  LOCKSTEP_CHECK(is_muon(config) == (memory.muon != nullptr));
  if (moment_dtype_ == DType::kBF16) rounding_ = backend.host_array<exec::MomentRounding>(1);
  LOCKSTEP_CHECK(is_adafactor(config) == (memory.factored != nullptr));
  if (is_lamb(config) || is_muon(config) || is_adafactor(config))
    direction_updates_ = backend.host_array<exec::OptimizerUpdate>(updates_.size());
  for (size_t g = 0; g < updates_.size(); ++g)
    if (groups_.groups[g].statistics())
      updates_[g] = moving_average(groups_.groups[g], layout.lanes);
  prepare(0, 0, 1);  // fixes the kind of each update from here on
  for (const plan::TensorPart& tensor : adapted_tensors(config, layout))
    elements_.push_back(tensor.range.size());
  cut_pieces(layout);
  prepare_updates(layout);
}

size_t Optimizer::moment_begin(size_t index) const {
  size_t bytes = 0;
  for (size_t moment = 0; moment < index; ++moment)
    bytes += moment_array_bytes(moment_dtype_, elements_of(kept(moment)));
  return bytes;
}

// The index of a piece's first element in a moment.
int64_t Optimizer::moment_index(const StatePiece& piece, size_t moment) const {
  const std::vector<KeptRange>& all = kept(moment);
  const auto found = std::ranges::find_if(all, [&](const KeptRange& part) {
    return part.range.begin <= piece.range.begin && piece.range.end <= part.range.end;
  });
  LOCKSTEP_CHECK(found != all.end());
  return found->local + piece.range.begin - found->range.begin;
}

void Optimizer::cut_pieces(const plan::ParameterLayout& layout) {
  // Padding belongs to the parameter before it.
  const std::vector<int64_t> begins = layout.begins();
  const std::vector<collectives::Range> holes = plan::ranges_without_last_moment(config_, layout);
  for (const collectives::Range& range : owned_) {
    kept_.push_back({range, owned_elements_});
    for (const collectives::Range& part : plan::outside(range, holes))
      last_kept_.push_back({part, elements_of(last_kept_)});
    for (const collectives::Range& part : collectives::cut_range(range, begins))
      pieces_.push_back(
          {layout.slot_at(part.begin), part, owned_elements_ + part.begin - range.begin});
    owned_elements_ += range.size();
  }
}

// Whether the group is updated along a direction that is computed first: Muon's matrices, and under
// LAMB and Adafactor everything except running statistics.
bool Optimizer::has_direction(const UpdateGroup& group) const {
  return group.matrix ||
         (direction_updates_.size() > 0 && !is_muon(config_) && !group.statistics());
}

void Optimizer::prepare_updates(const plan::ParameterLayout& layout) {
  std::vector<exec::OptimizerSlice> slices, directions, along, factored;
  std::vector<size_t> updated, directed, moved, of_factored;  // pieces
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const size_t number = groups_.at(pieces_[i].slot, pieces_[i].range.begin);
    const UpdateGroup& group = groups_.groups[number];
    const bool directed_here = has_direction(group);  // then moments move with the direction
    exec::OptimizerSlice slice =
        slice_of(layout, pieces_[i], group.statistics() || directed_here ? 0 : moments_);
    slice.group = number;
    if (!directed_here) {
      slices.push_back(slice);
      updated.push_back(i);
      continue;
    }
    along.push_back(slice);
    directed.push_back(i);
    if (group.matrix && memory_.factored != nullptr) {
      factored.push_back({.elements = slice.elements, .gradients = slice.gradients});
      of_factored.push_back(i);
      continue;
    }
    moved.push_back(i);
    directions.push_back(slice_of(layout, pieces_[i], is_muon(config_) ? 1 : moments_));
    directions.back().group = number;
  }
  if (memory_.checksummed) {
    state_checksums_ = std::make_unique<StateChecksums>(backend_, pieces_);
    if (!directions.empty()) state_checksums_->watch(directions, moved, {});
    if (!factored.empty()) state_checksums_->watch(factored, of_factored, {});
    state_checksums_->watch(slices, updated, {});
    state_checksums_->watch(along, directed, {.checks_gradients = is_lamb(config_)});
  }
  for (size_t i = 0; i < factored.size(); ++i)
    memory_.factored->add(factored[i], pieces_[of_factored[i]].range.begin);
  if (memory_.by_range) {
    LOCKSTEP_CHECK(along.empty());
    size_t piece = 0;
    for (const collectives::Range& range : owned_) {
      const size_t first = piece;
      while (piece < pieces_.size() && pieces_[piece].range.end <= range.end) ++piece;
      flat_updates_.push_back(backend_.flat_update(
          updates_, {slices.begin() + first, slices.begin() + piece}, memory_.gated));
    }
  } else {
    slices.insert(slices.end(), along.begin(), along.end());
    flat_updates_.push_back(backend_.flat_update(updates_, std::move(slices), memory_.gated));
  }
  if (!direction_updates_.empty())
    directions_ = backend_.flat_update(direction_updates_, std::move(directions), false);
  if (adapts()) adapting_work_ = backend_.repeated_work();
  if (memory_.factored != nullptr) summing_work_ = backend_.repeated_work();
}

exec::OptimizerSlice Optimizer::slice_of(const plan::ParameterLayout& layout,
                                         const StatePiece& piece,
                                         size_t moments) const {
  exec::OptimizerSlice slice = memory_.weights.slice(piece.range, piece.local);
  slice.gradients = memory_.gradients.at(piece.range.begin, piece.local);
  const auto moment = [&](size_t index) {
    return static_cast<std::byte*>(memory_.moments) + moment_begin(index) +
           moment_bytes(moment_dtype_, moment_index(piece, index));
  };
  LOCKSTEP_CHECK(moments <= slice.moments.size());
  for (size_t index = 0; index < moments; ++index) slice.moments[index] = moment(index);
  slice.moment_dtype = moment_dtype_;
  slice.square_moments = square_moments_;
  if (rounding_.empty()) return slice;
  slice.rounding = rounding_.data();
  slice.parameter = static_cast<uint32_t>(piece.slot);
  slice.first_element = static_cast<uint32_t>(piece.range.begin - layout.slots[piece.slot].offset);
  return slice;
}

exec::OptimizerUpdate Optimizer::update_for(const UpdateGroup& group, double trust) const {
  const exec::UpdateStep step = group.of(step_);
  if (group.matrix && is_muon(config_))
    return exec::MuonStep::make(std::get<MuonConfig>(config_.kind), step);
  return by_kind(
      config_,
      [&]<typename Update>(const auto& kind) -> exec::OptimizerUpdate {
        return Update::make(kind, step);
      },
      [&](const auto& kind) -> exec::OptimizerUpdate {
        return layer_wise_update(kind, step, trust);
      });
}

exec::OptimizerUpdate Optimizer::direction_for(const UpdateGroup& group) const {
  const exec::UpdateStep step = group.of(step_);
  if (const auto* muon = std::get_if<MuonConfig>(&config_.kind))
    return exec::MuonMomentum::make(*muon, step);
  if (const auto* adafactor = std::get_if<AdafactorConfig>(&config_.kind))
    return exec::AdafactorDirection::make(*adafactor, step);
  return exec::LambDirection::make(std::get<LambConfig>(config_.kind), step);
}

void Optimizer::prepare(double lr, double gradient_scale, int64_t step, double norm) {
  step_ = {.lr = lr, .gradient_scale = gradient_scale, .number = step};
  if (!rounding_.empty()) rounding_[0] = {memory_.seed, static_cast<uint32_t>(step)};
  for (size_t g = 0; g < updates_.size(); ++g) {
    const UpdateGroup& group = groups_.groups[g];
    if (!group.statistics()) updates_[g] = update_for(group, 1);
    if (!direction_updates_.empty()) direction_updates_[g] = direction_for(group);
  }
  if (memory_.factored != nullptr)
    memory_.factored->prepare(std::get<AdafactorConfig>(config_.kind), step_, norm);
  if (!adapts()) load();
}

void Optimizer::load() {
  for (const auto& update : flat_updates_) update->load();
}

void Optimizer::adapt() {
  if (memory_.muon != nullptr) {
    adapting_work_->run([this] {
      run_directions();
      memory_.muon->run();
    });
    load();
  }
  if (memory_.norms == nullptr) return;
  if (memory_.factored != nullptr) {
    summing_work_->run([this] { memory_.factored->queue_sums(); });
    memory_.factored->average();
  }
  adapting_work_->run([this] { measure(); });
  const std::span<const TensorNorms::Squares> squares = memory_.norms->sum();
  for (size_t g = 0; g < updates_.size(); ++g) {
    const UpdateGroup& group = groups_.groups[g];
    if (group.adapted != UpdateGroup::kNotAdapted)
      updates_[g] =
          update_for(group,
                     memory_.factored != nullptr ? adafactor_rate(group, squares[group.adapted])
                                                 : trust_ratio(group, squares[group.adapted]));
  }
  load();
}

void Optimizer::run_directions() {
  directions_->load();
  directions_->run();
}

// Queues the norms of the weights and of their gradients or directions.
void Optimizer::measure() {
  if (directions_) run_directions();
  if (memory_.factored != nullptr) memory_.factored->queue_directions();
  for (const TensorNorms::Piece& piece : memory_.norms->owned())
    memory_.norms->measure(piece,
                           memory_.weights.floats(piece.flat, piece.local),
                           memory_.gradients.at(piece.flat, piece.local));
}

double Optimizer::adafactor_rate(const UpdateGroup& group,
                                 const TensorNorms::Squares& squares) const {
  const auto& adafactor = std::get<AdafactorConfig>(config_.kind);
  const auto elements = static_cast<double>(elements_[group.adapted]);
  const double size = std::sqrt(squares.parameters / elements),
               direction = std::sqrt(squares.directions / elements),
               slowest = 1 / std::sqrt(static_cast<double>(step_.number));
  return std::max<double>(adafactor.epsilon2, size) * std::min(group.of(step_).lr, slowest) /
         std::max(1.0, direction / adafactor.clip_threshold);
}

double Optimizer::trust_ratio(const UpdateGroup& group, const TensorNorms::Squares& squares) const {
  const double weights = std::sqrt(squares.parameters), directions = std::sqrt(squares.directions);
  if (weights == 0 || directions == 0) return 1;
  const auto* lars = std::get_if<LarsConfig>(&config_.kind);
  if (lars == nullptr) return weights / directions;
  // LARS takes the norm of the unscaled gradient.
  const double gradient = directions * std::abs(step_.gradient_scale);
  return lars->trust_coefficient * weights /
         (gradient + group.of(step_).decay_of(lars->weight_decay) * weights + lars->epsilon);
}

}  // namespace lockstep::train
