#include "runtime/train/state/checkpoint_content.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/checksum.h"
#include "runtime/base/moment_block.h"
#include "runtime/checkpoint/format/class_names.h"
#include "runtime/checkpoint/format/preprocessing.h"
#include "runtime/config/paths.h"
#include "runtime/metrics/environment.h"
#include "runtime/plan/moment_layout.h"
#include "runtime/train/state/initialize.h"
#include "runtime/train/state/resume_check.h"
#include "runtime/train/step/weight_average.h"

namespace lockstep::train {

namespace {

// Whether an array of averages is that of the rows.
bool is_rows(const std::string& name) { return name == checkpoint::kRowAverages; }

}  // namespace

CheckpointContent::CheckpointContent(const RunContext& context,
                                     const RunMemory& memory,
                                     const Optimizer& optimizer)
    : context_(context),
      memory_(memory),
      optimizer_(optimizer),
      residuals_(context, memory),
      separate_(context.backend.ops().separate_memory) {}

checkpoint::CheckpointState CheckpointContent::state(const Progression& progression,
                                                     uint64_t weights_hash) const {
  const RunConfig& config = context_.config;
  const plan::ParameterLayout& layout = context_.plan.layout;
  checkpoint::CheckpointState state;
  state.step = progression.step;
  state.samples = progression.step * config.train.global_batch;
  state.seed = config.seed;
  state.lanes = context_.plan.sharding.lanes;
  state.ranks = context_.communicator.size();
  state.global_batch = config.train.global_batch;
  state.lockstep_version = metrics::lockstep_version();
  state.weights_hash = weights_hash;
  state.config_hash = hash_text(config::recorded_text(config));
  state.optimizer = optimizer_name(config.optimizer);
  state.moments = kept_arrays(config);
  for (const std::string& name : residuals_.names()) state.moments.push_back(name);
  if (context_.plan.traffic.adafactor) add_averages(*context_.plan.traffic.adafactor, state);
  state.flat_elements = layout.elements;
  state.frozen_elements = layout.frozen_elements;
  if (std::holds_alternative<MuonConfig>(config.optimizer.kind)) {
    for (const size_t slot : plan::slots_without_last_moment(config.optimizer, layout))
      state.one_moment.push_back(layout.slots[slot].name);
  }
  state.layout = named_slices(layout);
  state.extra = sample_order(context_);
  state.extra[checkpoint::kConfigKey] = config::recorded_text(config);
  state.extra[checkpoint::kContentKey] = to_hex(context_.data.summary.train_checksum);
  if (!context_.bits.value_or("").empty()) state.extra[checkpoint::kBitsKey] = *context_.bits;
  checkpoint::keep_class_names(context_.data.summary.class_names, state);
  if (context_.model.input != config::ModelInput::kTokens)
    checkpoint::keep_preprocessing(config::preprocessor_fields(context_.data.summary.preprocessing),
                                   state);
  if (config.execution.precision == Precision::kFp16 || progression.loss_scale.skipped > 0)
    state.extra[checkpoint::kLossScaleKey] = fmt::format("{} {} {}",
                                                         progression.loss_scale.value,
                                                         progression.loss_scale.good_steps,
                                                         progression.loss_scale.skipped);
  if (config.schedule.kind == ScheduleConfig::Kind::kPlateau)
    state.extra[checkpoint::kPlateauKey] =
        fmt::format("{} {}", progression.plateau_evals, progression.rate_falls);
  state.best_metric = progression.best_metric;
  state.best_step = progression.best_step;
  state.evals_since_best = progression.evals_since_best;
  return state;
}

int64_t CheckpointContent::bytes() const {
  const auto kept = static_cast<int64_t>(kept_arrays(context_.config).size());
  const plan::ParameterLayout& layout = context_.plan.layout;
  int64_t left_out = 0;
  for (const collectives::Range& range :
       plan::ranges_without_last_moment(context_.config.optimizer, layout))
    left_out += range.size();
  const auto& adafactor = context_.plan.traffic.adafactor;
  return (layout.elements + kept * layout.trained() - left_out +
          (adafactor ? adafactor->averages : 0)) *
         static_cast<int64_t>(sizeof(float));
}

void CheckpointContent::collect(bool snapshot) {
  release();
  weights_ = collect_weights(snapshot ? memory_.weights_snapshot : std::span<float>());
  residuals_copy_ = residuals_.read();
  shards_ = residuals_copy_.shards;
  collect_moments(snapshot ? memory_.moments_snapshot : std::span<std::byte>());
  if (!separate_) return;
  for (const Piece& piece : pieces_) context_.backend.copy(piece.from, piece.to, piece.bytes);
  context_.backend.synchronize();
  pieces_.clear();
}

void CheckpointContent::copy() {
  for (const Piece& piece : pieces_) std::memcpy(piece.to, piece.from, piece.bytes);
  pieces_.clear();
}

void CheckpointContent::release() {
  weights_ = nullptr;
  shards_.clear();
  pieces_.clear();
  weights_copy_ = {};
  moments_copy_ = {};
  gathered_.reset();
  residuals_copy_ = {};
}

// The arrays of averages, and what they and the moments of other parameters cover.
void CheckpointContent::add_averages(const plan::AdafactorLayout& averages,
                                     checkpoint::CheckpointState& state) const {
  const plan::ParameterLayout& layout = context_.plan.layout;
  state.partial[moment_names(context_.config.optimizer).front()] = plan::outside(
      {0, layout.trained()}, plan::ranges_without_last_moment(context_.config.optimizer, layout));
  for (const char* name : {checkpoint::kRowAverages, checkpoint::kColumnAverages}) {
    state.moments.emplace_back(name);
    std::vector<collectives::Range>& ranges = state.partial[name];
    for (const plan::FactoredTensor& tensor : averages.tensors)
      ranges.push_back(
          {tensor.range.begin,
           tensor.range.begin + std::ssize(optimizer_.factored()->of(tensor, is_rows(name)))});
    std::ranges::sort(ranges, {}, &collectives::Range::begin);
  }
}

// Returns where bytes that begin at `from` will be: at the beginning of `to`, which then shrinks,
// or in place if `to` is empty.
const std::byte* CheckpointContent::piece(const std::byte* from,
                                          std::span<std::byte>& to,
                                          size_t bytes) {
  if (to.empty()) return from;
  std::byte* const destination = to.data();
  pieces_.push_back({from, destination, bytes});
  to = to.subspan(bytes);
  return destination;
}

const float* CheckpointContent::collect_weights(std::span<float> to) {
  const bool writes = context_.communicator.rank() == 0;
  const int64_t all = context_.plan.layout.elements;
  const float* const whole = whole_weights(context_.plan, memory_);
  if (whole == nullptr) {
    gathered_.emplace(context_, memory_, to);
    const float* const gathered_weights = gathered_->read();
    return writes ? gathered_weights : nullptr;
  }
  if (!writes) return nullptr;
  if (to.empty() && separate_) {
    weights_copy_.resize(static_cast<size_t>(all));
    to = weights_copy_;
  }
  std::span<std::byte> destination = std::as_writable_bytes(to);
  return reinterpret_cast<const float*>(piece(reinterpret_cast<const std::byte*>(whole),
                                              destination,
                                              static_cast<size_t>(all) * sizeof(float)));
}

void CheckpointContent::collect_moments(std::span<std::byte> to) {
  const std::vector<std::string> kept = kept_arrays(context_.config);
  const std::vector<collectives::Range> owned = context_.owned();
  const auto dtype_of = [&](size_t array) {  // the average follows the moments
    return array < optimizer_.moments() ? optimizer_.moment_dtype() : DType::kF32;
  };
  // Calls f(range, address of its values) for each part of an array that this rank writes.
  const auto each_part = [&](size_t array, auto f) {
    const std::byte* const begin = memory_.moments + optimizer_.moment_begin(array);
    for (const collectives::Range& range : owned) {
      for (const Optimizer::KeptRange& has : optimizer_.kept(array)) {
        const collectives::Range part = {std::max(range.begin, has.range.begin),
                                         std::min(range.end, has.range.end)};
        if (part.begin >= part.end) continue;
        const int64_t index = has.local + part.begin - has.range.begin;
        f(part, begin + moment_bytes(dtype_of(array), index));
      }
    }
  };
  const FactoredAverages* const averages =
      context_.communicator.rank() == 0 ? optimizer_.factored() : nullptr;
  if (to.empty() && separate_) {
    size_t bytes = 0;
    for (size_t m = 0; m < kept.size(); ++m)
      each_part(m, [&](const collectives::Range& part, const std::byte*) {
        bytes += moment_bytes(dtype_of(m), part.size());
      });
    if (averages != nullptr) bytes += averages->averages().size_bytes();
    moments_copy_.resize(bytes);
    to = moments_copy_;
  }
  for (size_t m = 0; m < kept.size(); ++m) {
    checkpoint::MomentShard& shard = shards_.emplace_back(checkpoint::MomentShard{kept[m], {}});
    each_part(m, [&](const collectives::Range& part, const std::byte* from) {
      const auto elements = static_cast<size_t>(part.size());
      const size_t bytes = moment_bytes(dtype_of(m), part.size());
      const std::byte* const values = piece(from, to, bytes);
      checkpoint::MomentSlice& slice =
          shard.slices.emplace_back(checkpoint::MomentSlice{part.begin, {}});
      switch (dtype_of(m)) {
        case DType::kBF16:
          slice.halves = {reinterpret_cast<const BFloat16*>(values), elements};
          break;
        case DType::kU8:
          slice.blocks = {reinterpret_cast<const MomentBlock*>(values),
                          bytes / sizeof(MomentBlock)};
          break;
        default: slice.values = {reinterpret_cast<const float*>(values), elements};
      }
    });
  }
  // All ranks have the averages, so one of them writes them.
  for (const char* name : {checkpoint::kRowAverages, checkpoint::kColumnAverages}) {
    if (averages == nullptr) return;
    checkpoint::MomentShard& shard = shards_.emplace_back(checkpoint::MomentShard{name, {}});
    for (const plan::FactoredTensor& tensor : averages->layout().tensors) {
      const std::span<float> values = averages->of(tensor, is_rows(name));
      const std::byte* const at =
          piece(reinterpret_cast<const std::byte*>(values.data()), to, values.size_bytes());
      shard.slices.push_back(
          {tensor.range.begin, {reinterpret_cast<const float*>(at), values.size()}});
    }
  }
}

}  // namespace lockstep::train
