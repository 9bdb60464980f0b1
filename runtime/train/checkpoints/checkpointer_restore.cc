// Resuming a run from a checkpoint.
#include <algorithm>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/train/checkpoints/checkpointer.h"
#include "runtime/train/checkpoints/resume_check.h"
#include "runtime/train/checkpoints/weights.h"
#include "runtime/train/step/weight_average.h"

namespace lockstep {
namespace {

// The newest checkpoint whose files match their checksums; empty if there is none. Damaged ones are
// skipped with a warning. Throws CheckpointError if all are damaged.
std::string newest_intact(const std::filesystem::path& root, const std::string& run_dir) {
  std::vector<CheckpointEntry> entries = list_checkpoints(root);
  std::string newest_problem;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    const std::vector<std::string> problems = verify(entry->path);
    if (problems.empty()) return entry->path;
    log_warn("skipping {}: {}", entry->path.string(), problems.front());
    if (newest_problem.empty()) newest_problem = problems.front();
  }
  if (!newest_problem.empty())
    throw CheckpointError(
        "run folder '{}' has checkpoints but none can be read; `lockstep inspect` shows why; the "
        "newest: {}",
        run_dir,
        newest_problem);
  return "";
}

// The loss scale of a checkpoint, or the config's initial one if the checkpoint has none because it
// was written with another precision.
LossScale::State loss_scale_of(const CheckpointState& state, const RunConfig& config) {
  const LossScale begin(config);
  LossScale::State scale = begin.state();
  const auto saved = state.extra.find(kLossScaleKey);
  if (saved == state.extra.end()) return scale;
  std::istringstream(saved->second) >> scale.value >> scale.good_steps >> scale.skipped;
  if (!begin.dynamic()) scale = {begin.state().value, begin.state().good_steps, scale.skipped};
  return scale;
}

}  // namespace

HostCopyOf<std::byte> Checkpointer::host_moments() const {
  size_t bytes = optimizer_.moment_begin(optimizer_.moments());
  if (kept_arrays(context_.config).size() > optimizer_.moments())
    bytes += static_cast<size_t>(optimizer_.owned_elements()) * sizeof(float);
  return {context_.backend, memory_.moments, static_cast<int64_t>(bytes)};
}

std::optional<Progression> Checkpointer::resume(const std::string& resume,
                                                const std::vector<std::string>& allowed_changes) {
  const auto from = [&](const std::filesystem::path& folder) {
    Progression progression = restore(folder, allowed_changes);
    log_info("resuming from {} at step {}", folder.string(), progression.step);
    return progression;
  };
  const std::string chosen = choose(resume);
  local_.open(/*discard_old=*/resume == "none");
  if (resume == "auto") {
    const std::optional<int64_t> step = local_.newest_after(
        chosen.empty() ? -1 : step_of_name(std::filesystem::path(chosen).filename().string()));
    try {
      if (step) return from(local_.root() / checkpoint_name(*step));
    } catch (const AgreedError& error) {
      if (chosen.empty()) throw;
      log_warn("the hosts' copies of step {} cannot be used: {}", *step, error.what());
    }
  }
  return chosen.empty() ? std::nullopt : std::optional(from(chosen));
}

// Chooses a checkpoint of the run folder; returns an empty text if there is none.
std::string Checkpointer::choose(const std::string& resume) const {
  std::string chosen;
  run_on_root(context_.communicator, [&] {
    if (resume == "none") {
      if (!list_checkpoints(root_).empty())
        throw CheckpointError(
            "run folder '{}' already has checkpoints; give --resume auto to continue that run, or "
            "another --run-dir",
            context_.run_dir.string());
    } else if (resume == "auto") {
      chosen = newest_intact(root_, context_.run_dir.string());
    } else {
      chosen = resolve_checkpoint(resume);
      refuse_later_checkpoints(read_state(chosen).step);
    }
  });
  return broadcast_text(context_.communicator, chosen);
}

// Resuming from an earlier step would leave two histories in one run folder.
void Checkpointer::refuse_later_checkpoints(int64_t step) const {
  const std::vector<CheckpointEntry> entries = list_checkpoints(root_);
  if (entries.empty() || entries.back().step <= step) return;
  throw CheckpointError(
      "--resume: run folder '{}' already has a checkpoint of step {}, after step {} of the one to "
      "resume from; give --resume auto to continue from the newest, or another --run-dir",
      context_.run_dir.string(),
      entries.back().step,
      step);
}

// An average that the checkpoint lacks begins with the weights. Moments that the checkpoint stores
// as another type are converted.
void Checkpointer::restore_moments(const CheckpointState& state,
                                   const std::filesystem::path& folder,
                                   const float* weights) {
  HostCopyOf<std::byte> moments = host_moments();
  const std::vector<std::string> names = kept_arrays(context_.config);
  for (size_t m = 0; m < names.size(); ++m) {
    std::byte* const begin = moments.data() + optimizer_.moment_begin(m);
    if (m < optimizer_.moments() && optimizer_.moment_dtype() == DType::kBF16) {
      restore_halves(state, folder, m, reinterpret_cast<BFloat16*>(begin));
      continue;
    }
    std::vector<MomentTarget> targets;
    for (const auto& [range, local] : optimizer_.kept(m)) {
      const std::span values(reinterpret_cast<float*>(begin) + local,
                             static_cast<size_t>(range.size()));
      if (!has_array(state, names[m]))
        std::copy_n(weights + range.begin, range.size(), values.data());
      targets.push_back({range.begin, values});
    }
    if (has_array(state, names[m])) read_optimizer(folder, state, slices_, names[m], targets);
    if (names[m] != kAverageArray) continue;
    // The checkpoint has no average of parameters that were frozen; their averages begin with the
    // weights (see --allow-change).
    for (const NamedSlice& slice : frozen_slices(state, slices_)) {
      for (const MomentTarget& target : targets) {
        const auto size = static_cast<int64_t>(target.values.size());
        const int64_t begin = std::max(slice.offset, target.begin),
                      end = std::min(slice.offset + slice.shape.elements(), target.begin + size);
        if (begin < end)
          std::copy_n(weights + begin, end - begin, target.values.data() + begin - target.begin);
      }
    }
  }
  moments.write();
}

// Restores a BF16 moment range by range, so that only one range takes memory as floats at a time.
void Checkpointer::restore_halves(const CheckpointState& state,
                                  const std::filesystem::path& folder,
                                  size_t moment,
                                  BFloat16* to) const {
  const std::string name = moment_names(context_.config.optimizer)[moment];
  std::vector<float> values;
  for (const auto& [range, local] : optimizer_.kept(moment)) {
    values.resize(static_cast<size_t>(range.size()));
    read_optimizer(folder, state, slices_, name, {{range.begin, values}});
    std::ranges::transform(values, to + local, round_to<BFloat16>);
  }
}

// Sends rank 0's weights to all ranks that write their parameters.
void Checkpointer::broadcast_weights(float* weights) const {
  constexpr int64_t kElements = int64_t{1} << 22;  // at a time
  std::vector<float> unused;
  if (!context_.writes_parameters()) unused.resize(kElements);
  const int64_t all = context_.plan.layout.elements;
  for (int64_t begin = 0; begin < all; begin += kElements) {
    float* const to = unused.empty() ? weights + begin : unused.data();
    const auto bytes = static_cast<size_t>(std::min(kElements, all - begin)) * sizeof(float);
    context_.communicator.broadcast(reinterpret_cast<std::byte*>(to), bytes, 0);
  }
  run_on_all(context_.communicator, [] {});  // the ranks of a node may read what one of them wrote
}

Progression Checkpointer::restore(const std::filesystem::path& folder,
                                  const std::vector<std::string>& allowed_changes) {
  Progression progression;
  CheckpointState state;
  std::optional<HostWeights> host_weights;
  const bool local = local_.wanted() && folder.parent_path() == local_.root();
  run_on_all(context_.communicator, [&] {
    state = read_state(folder);
    check_resumable(context_, state, folder, residuals_.names(), allowed_changes);
    host_weights.emplace(context_, memory_);
    const bool reads = local ? context_.communicator.rank() == 0 : context_.writes_parameters();
    if (reads) read_model(folder, state, slices_, host_weights->data());
  });
  if (local) broadcast_weights(host_weights->data());
  run_on_all(context_.communicator, [&] {
    HostWeights& weights = *host_weights;
    restore_moments(state, folder, weights.data());
    residuals_.restore(state, folder, slices_);
    const uint64_t hash = hash_parameters(context_.plan.layout, weights.data());
    if (hash != state.weights_hash)
      throw CheckpointError("{}: the hash of the weights is {:016x}, but the state records {:016x}",
                            folder.string(),
                            hash,
                            state.weights_hash);
    if (context_.writes_parameters()) weights.write();
    progression = {state.step,
                   state.best_metric,
                   state.best_step,
                   state.evals_since_best,
                   loss_scale_of(state, context_.config)};
    const auto plateau = state.extra.find(kPlateauKey);
    if (plateau != state.extra.end())
      std::istringstream(plateau->second) >> progression.plateau_evals >> progression.rate_falls;
  });
  return progression;
}

}  // namespace lockstep
