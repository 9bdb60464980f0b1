#include "runtime/train/state/begin_state.h"

#include <algorithm>
#include <optional>
#include <sstream>

#include "collectives/agree/agreement.h"
#include "runtime/base/log.h"
#include "runtime/base/moment_block.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/train/state/initial_weights.h"
#include "runtime/train/state/initialize.h"
#include "runtime/train/state/resume_check.h"
#include "runtime/train/state/weights.h"
#include "runtime/train/step/weight_average.h"

namespace lockstep::train {
namespace {

// Where a checkpoint's arrays are read from.
struct Source {
  const checkpoint::CheckpointState& state;
  const std::filesystem::path& folder;
  const std::vector<checkpoint::NamedSlice>& slices;  // of this run

  void read(const std::string& array, const std::vector<checkpoint::MomentTarget>& targets) const {
    checkpoint::read_optimizer(folder, state, slices, array, targets);
  }
};

using KeptRanges = std::vector<Optimizer::KeptRange>;

// An array that the checkpoint lacks begins with the weights.
void read_floats(const Source& from,
                 const std::string& name,
                 const KeptRanges& kept,
                 const float* weights,
                 float* to) {
  std::vector<checkpoint::MomentTarget> targets;
  for (const auto& [range, local] : kept) {
    const std::span values(to + local, static_cast<size_t>(range.size()));
    if (!checkpoint::has_array(from.state, name))
      std::copy_n(weights + range.begin, range.size(), values.data());
    targets.push_back({range.begin, values});
  }
  if (checkpoint::has_array(from.state, name)) from.read(name, targets);
  if (name != checkpoint::kAverageArray) return;
  // The checkpoint has no average of parameters that were frozen; their averages begin with the
  // weights (see --allow-change).
  for (const checkpoint::NamedSlice& slice : checkpoint::frozen_slices(from.state, from.slices)) {
    for (const checkpoint::MomentTarget& target : targets) {
      const auto size = static_cast<int64_t>(target.values.size());
      const int64_t begin = std::max(slice.offset, target.begin),
                    end = std::min(slice.offset + slice.shape.elements(), target.begin + size);
      if (begin < end)
        std::copy_n(weights + begin, end - begin, target.values.data() + begin - target.begin);
    }
  }
}

// Range by range, so that only one range takes memory as floats at a time.
void read_halves(const Source& from,
                 const std::string& name,
                 const KeptRanges& kept,
                 BFloat16* to) {
  std::vector<float> values;
  for (const auto& [range, local] : kept) {
    values.resize(static_cast<size_t>(range.size()));
    from.read(name, {{range.begin, values}});
    std::ranges::transform(values, to + local, round_to<BFloat16>);
  }
}

// As they are, or the floats of a range in blocks.
void read_blocks(const Source& from,
                 const std::string& name,
                 const KeptRanges& kept,
                 MomentBlock* to) {
  const bool stored = checkpoint::has_blocks(from.folder, from.state, name);
  const MomentMap& map = moment_map(is_moment_of_squares(name));
  std::vector<float> values;
  for (const auto& [range, local] : kept) {
    const std::span blocks(to + local / kMomentBlock,
                           static_cast<size_t>(range.size() / kMomentBlock));
    if (stored) {
      checkpoint::read_moment_blocks(
          from.folder, from.state, from.slices, name, {{range.begin, blocks}});
      continue;
    }
    values.resize(static_cast<size_t>(range.size()));
    from.read(name, {{range.begin, values}});
    for (size_t i = 0; i < blocks.size(); ++i)
      encode_moments(map, &values[i * kMomentBlock], blocks[i]);
  }
}

// Moments that the checkpoint stores as another type are converted.
void read_moments(const RunContext& context,
                  const Optimizer& optimizer,
                  const Source& from,
                  const float* weights,
                  std::byte* memory) {
  const std::vector<std::string> names = kept_arrays(context.config);
  size_t bytes = optimizer.moment_begin(optimizer.moments());
  if (names.size() > optimizer.moments())
    bytes += static_cast<size_t>(optimizer.owned_elements()) * sizeof(float);
  exec::HostCopyOf<std::byte> moments(context.backend, memory, static_cast<int64_t>(bytes));
  for (size_t m = 0; m < names.size(); ++m) {
    std::byte* const begin = moments.data() + optimizer.moment_begin(m);
    switch (m < optimizer.moments() ? optimizer.moment_dtype() : DType::kF32) {
      case DType::kBF16:
        read_halves(from, names[m], optimizer.kept(m), reinterpret_cast<BFloat16*>(begin));
        break;
      case DType::kU8:
        read_blocks(from, names[m], optimizer.kept(m), reinterpret_cast<MomentBlock*>(begin));
        break;
      default:
        read_floats(from, names[m], optimizer.kept(m), weights, reinterpret_cast<float*>(begin));
    }
  }
  moments.write();
}

// The averages of Adafactor, which all ranks keep.
void read_averages(const Source& from, const FactoredAverages* averages) {
  if (averages == nullptr) return;
  for (const char* name : {checkpoint::kRowAverages, checkpoint::kColumnAverages}) {
    std::vector<checkpoint::MomentTarget> targets;
    for (const plan::FactoredTensor& tensor : averages->layout().tensors)
      targets.push_back({tensor.range.begin,
                         averages->of(tensor, std::string(name) == checkpoint::kRowAverages)});
    from.read(name, targets);
  }
}

// The first moment of every element that the optimizer updates, if it does not begin with 0.
void begin_moments(const RunContext& context, const RunMemory& memory, const Optimizer& optimizer) {
  const float value = initial_moment(context.config.optimizer);
  if (value == 0) return;
  const size_t bytes = optimizer.moment_begin(1);
  exec::HostCopyOf<std::byte> moments(context.backend, memory.moments, static_cast<int64_t>(bytes));
  // `moments` may end in padding, which has no use.
  const auto fill = [&]<typename T>(const T& with) {
    std::fill_n(reinterpret_cast<T*>(moments.data()), bytes / sizeof(T), with);
  };
  switch (optimizer.moment_dtype()) {
    case DType::kBF16: fill(round_to<BFloat16>(value)); break;
    case DType::kU8: {
      float values[kMomentBlock];
      std::fill_n(values, kMomentBlock, value);
      MomentBlock block;
      encode_moments(kUnsignedMoments, values, block);
      fill(block);
      break;
    }
    default: fill(value);
  }
  moments.write();
}

// Sends rank 0's weights to all ranks that write their parameters.
void broadcast_weights(const RunContext& context, float* weights) {
  constexpr int64_t kElements = int64_t{1} << 22;  // at a time
  std::vector<float> unused;
  if (!context.writes_parameters()) unused.resize(kElements);
  const int64_t all = context.plan.layout.elements;
  for (int64_t begin = 0; begin < all; begin += kElements) {
    float* const to = unused.empty() ? weights + begin : unused.data();
    const auto bytes = static_cast<size_t>(std::min(kElements, all - begin)) * sizeof(float);
    context.communicator.broadcast(reinterpret_cast<std::byte*>(to), bytes, 0);
  }
  collectives::run_on_all(context.communicator,
                          [] {});  // the ranks of a node may read what one of them wrote
}

// The loss scale of a checkpoint, or the config's initial one if the checkpoint has none because it
// was written with another precision.
LossScale::State loss_scale_of(const checkpoint::CheckpointState& state, const RunConfig& config) {
  const LossScale begin(config);
  LossScale::State scale = begin.state();
  const auto saved = state.extra.find(checkpoint::kLossScaleKey);
  if (saved == state.extra.end()) return scale;
  std::istringstream(saved->second) >> scale.value >> scale.good_steps >> scale.skipped;
  if (!begin.dynamic()) scale = {begin.state().value, begin.state().good_steps, scale.skipped};
  return scale;
}

void initialize_weights(const RunContext& context, const RunMemory& memory) {
  HostWeights weights(context, memory);
  const plan::ParameterLayout& layout = context.plan.layout;
  initialize_parameters(layout, context.config.seed, weights.data());
  const checkpoint::WeightsRead read =
      read_initial_weights(context.config, named_slices(layout), weights.data());
  initialize_overrides(layout, context.config.seed, weights.data());
  if (context.communicator.rank() == 0) {
    for (const std::string& note : read.notes) log_warn("{}", note);
    for (const std::string& note : notes_of_data(context.config, context.data.summary))
      log_warn("{}", note);
  }
  weights.write();
}

}  // namespace

Progression restore_state(const RunContext& context,
                          const RunMemory& memory,
                          const CheckpointContent& content,
                          const std::filesystem::path& folder,
                          bool on_hosts,
                          const std::vector<std::string>& allowed_changes) {
  Progression progression;
  checkpoint::CheckpointState state;
  const std::vector<checkpoint::NamedSlice> slices = named_slices(context.plan.layout);
  std::optional<HostWeights> weights;
  collectives::run_on_all(context.communicator, [&] {
    state = checkpoint::read_state(folder);
    check_resumable(context, state, folder, content.residuals().names(), allowed_changes);
    weights.emplace(context, memory);
    if (on_hosts ? context.communicator.rank() == 0 : context.writes_parameters())
      checkpoint::read_model(folder, state, slices, weights->data());
  });
  if (on_hosts) broadcast_weights(context, weights->data());
  collectives::run_on_all(context.communicator, [&] {
    read_moments(
        context, content.optimizer(), {state, folder, slices}, weights->data(), memory.moments);
    read_averages({state, folder, slices}, content.optimizer().factored());
    content.residuals().restore(state, folder, slices);
    const uint64_t hash = hash_parameters(context.plan.layout, weights->data());
    if (hash != state.weights_hash)
      throw CheckpointError("{}: the hash of the weights is {:016x}, but the state records {:016x}",
                            folder.string(),
                            hash,
                            state.weights_hash);
    if (context.writes_parameters()) weights->write();
    progression = {state.step,
                   state.best_metric,
                   state.best_step,
                   state.evals_since_best,
                   loss_scale_of(state, context.config)};
    const auto plateau = state.extra.find(checkpoint::kPlateauKey);
    if (plateau != state.extra.end())
      std::istringstream(plateau->second) >> progression.plateau_evals >> progression.rate_falls;
  });
  return progression;
}

void start_from_scratch(const RunContext& context, const RunMemory& memory, StepUpdate& update) {
  const auto fill_zeros = [&](void* row_memory, plan::RowKind row) {
    const size_t bytes = context.plan.memory.row_bytes(row);
    if (bytes > 0)
      context.backend.fill_zeros(static_cast<float*>(row_memory),
                                 static_cast<int64_t>(bytes / sizeof(float)));
  };
  fill_zeros(memory.moments, plan::RowKind::kMoments);
  begin_moments(context, memory, update.optimizer());
  if (const FactoredAverages* factored = update.optimizer().factored())
    std::ranges::fill(factored->averages(), 0.0f);
  fill_zeros(memory.residuals, plan::RowKind::kResiduals);
  update.loss_scale().restore(LossScale(context.config).state());
  collectives::run_on_all(context.communicator, [&] {
    if (context.writes_parameters()) initialize_weights(context, memory);
  });
  if (update.average() != nullptr) update.average()->begin();
}

}  // namespace lockstep::train
