#include "runtime/train/checkpoints/checkpointer.h"

#include <algorithm>
#include <sstream>

#include "collectives/agreement.h"
#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/writer.h"
#include "runtime/config/parse.h"
#include "runtime/metrics/environment.h"
#include "runtime/train/checkpoints/initialize.h"
#include "runtime/train/checkpoints/resume_check.h"
#include "runtime/train/checkpoints/weights.h"
#include "runtime/train/step/weight_average.h"

namespace lockstep {

namespace {

// The newest checkpoint of which every bit is as it was written; empty when there is none. Damaged
// ones are passed over aloud.
std::string newest_intact(const std::filesystem::path& root) {
  std::vector<CheckpointEntry> entries = list_checkpoints(root);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    const std::vector<std::string> problems = verify(entry->path);
    if (problems.empty()) return entry->path;
    log_warn("passing over {}: {}", entry->path.string(), problems.front());
  }
  return "";
}

constexpr const char* kLossScale = "loss scale";  // factor, good steps, skipped steps

// Of a checkpoint that another precision wrote: as the config begins.
LossScale::State loss_scale_of(const CheckpointState& state, const RunConfig& config) {
  const LossScale begin(config);
  LossScale::State scale = begin.state();
  const auto saved = state.extra.find(kLossScale);
  if (saved == state.extra.end() || !begin.dynamic()) return scale;
  std::istringstream(saved->second) >> scale.value >> scale.good_steps >> scale.skipped;
  return scale;
}

}  // namespace

Checkpointer::Checkpointer(const RunParts& parts, const RunMemory& memory, Optimizer& optimizer)
    : parts_(parts),
      memory_(memory),
      optimizer_(optimizer),
      residuals_(parts, memory),
      root_(parts.run_dir / "checkpoints"),
      slices_(named_slices(parts.plan.layout)) {}

HostCopy Checkpointer::host_moments() const {
  return HostCopy(parts_.backend,
                  memory_.moments,
                  optimizer_.moment_offset(kept_arrays(parts_.config).size(), 0));
}

CheckpointState Checkpointer::state_for(const Progression& progression,
                                        uint64_t weights_hash) const {
  const RunConfig& config = parts_.config;
  CheckpointState state;
  state.step = progression.step;
  state.samples = progression.step * config.train.global_batch;
  state.seed = config.seed;
  state.lanes = parts_.plan.lanes;
  state.ranks = parts_.communicator.size();
  state.global_batch = config.train.global_batch;
  state.lockstep_version = lockstep_version();
  state.weights_hash = weights_hash;
  state.config_hash = hash_text(to_text(config));
  state.optimizer = optimizer_name(config.optimizer);
  state.moments = kept_arrays(config);
  for (const std::string& name : residuals_.names()) state.moments.push_back(name);
  state.flat_elements = parts_.plan.layout.elements;
  state.layout = slices_;
  state.extra = sample_order(parts_);
  state.extra[kConfigKey] = to_text(config);
  state.extra[kContentKey] = to_hex(parts_.data.summary.train_content);
  if (config.execution.precision == Precision::kFp16)
    state.extra[kLossScale] = fmt::format("{} {} {}",
                                          progression.loss_scale.value,
                                          progression.loss_scale.good_steps,
                                          progression.loss_scale.skipped);
  state.best_metric = progression.best_metric;
  state.best_step = progression.best_step;
  state.evals_since_best = progression.evals_since_best;
  return state;
}

void Checkpointer::save(const Progression& progression, uint64_t weights_hash) {
  Communicator& communicator = parts_.communicator;
  CheckpointState state = state_for(progression, weights_hash);
  std::optional<CheckpointWriter> writer;
  run_on_root(communicator, [&] {
    parts_.check_folder();
    writer.emplace(CheckpointWriter::begin(root_, state.step));
  });
  try {
    std::vector<FileRecord> records;
    HostWeights weights(parts_, memory_);
    weights.read();
    run_on_all(communicator, [&] {
      if (!writer) writer.emplace(CheckpointWriter::join(root_, state.step));
      if (communicator.rank() == 0) records.push_back(writer->write_model(slices_, weights.data()));
      if (state.moments.empty()) return;
      HostCopy moments = host_moments();
      moments.read();
      ErrorFeedbackStore::Copy residuals = residuals_.read();
      std::vector<MomentShard> shards = std::move(residuals.shards);
      const std::vector<std::string> kept = kept_arrays(parts_.config);
      for (size_t m = 0; m < kept.size(); ++m) {
        MomentShard shard{kept[m], {}};
        const std::vector<Range> owned = parts_.owned();
        for (size_t bucket = 0; bucket < owned.size(); ++bucket) {
          const Range& range = owned[bucket];
          const int64_t place = parts_.plan.place_of(communicator.rank(), bucket, range.begin);
          shard.slices.push_back({range.begin,
                                  {moments.data() + optimizer_.moment_offset(m) + place,
                                   static_cast<size_t>(range.size())}});
        }
        shards.push_back(std::move(shard));
      }
      records.push_back(
          writer->write_optimizer_shard(communicator.rank(), communicator.size(), shards));
    });
    for (const std::string& text :
         gather_texts(communicator, records.empty() ? "" : serialize(records.back()))) {
      if (!text.empty()) state.files.push_back(parse_file_record(text));
    }
    run_on_root(communicator, [&] {
      // Rank 0 gathered its last record above; the model's own record comes first.
      if (records.size() > 1) state.files.insert(state.files.begin(), records.front());
      parts_.check_folder();
      writer->commit(state);
    });
  } catch (const Error&) {
    if (writer && communicator.rank() == 0) writer->abandon();
    throw;
  }
  run_on_root(communicator, [&] {
    parts_.check_folder();
    const bool has_best = parts_.config.checkpoint.keep_best && progression.best_metric.has_value();
    if (has_best && progression.best_step == state.step) write_best(root_, state.step);
    prune(root_,
          parts_.config.checkpoint.keep_last,
          has_best ? std::optional(progression.best_step) : std::nullopt,
          state.step);
  });
}

std::optional<std::filesystem::path> Checkpointer::choose(const std::string& resume) const {
  std::string chosen;
  run_on_root(parts_.communicator, [&] {
    if (resume == "none") {
      if (!list_checkpoints(root_).empty())
        throw CheckpointError(
            "run folder '{}' already has checkpoints; give --resume auto to continue that run, or "
            "another --run-dir",
            parts_.run_dir.string());
    } else if (resume == "auto") {
      chosen = newest_intact(root_);
      if (chosen.empty() && !list_checkpoints(root_).empty())
        throw CheckpointError(
            "run folder '{}' has checkpoints but none can be read; `lockstep inspect` shows why",
            parts_.run_dir.string());
    } else {
      chosen = resolve_checkpoint(resume);
      refuse_later_checkpoints(read_state(chosen).step);
    }
  });
  chosen = broadcast_text(parts_.communicator, chosen);
  return chosen.empty() ? std::nullopt : std::optional<std::filesystem::path>(chosen);
}

// To go on from an earlier step would leave two histories in one run folder.
void Checkpointer::refuse_later_checkpoints(int64_t step) const {
  const std::vector<CheckpointEntry> entries = list_checkpoints(root_);
  if (entries.empty() || entries.back().step <= step) return;
  throw CheckpointError(
      "--resume: run folder '{}' already has a checkpoint of step {}, after step {} of the one to "
      "resume from; give --resume auto to go on from the newest, or another --run-dir",
      parts_.run_dir.string(),
      entries.back().step,
      step);
}

// An average that the checkpoint lacks begins with the weights.
void Checkpointer::restore_moments(const CheckpointState& state,
                                   const std::filesystem::path& folder,
                                   const float* weights) {
  HostCopy moments = host_moments();
  const std::vector<std::string> names = kept_arrays(parts_.config);
  for (size_t m = 0; m < names.size(); ++m) {
    if (!has_array(state, names[m])) {
      for (size_t r = 0; r < optimizer_.owned().size(); ++r) {
        const Range& range = optimizer_.owned()[r];
        std::copy_n(
            weights + range.begin, range.size(), moments.data() + optimizer_.moment_offset(m, r));
      }
      continue;
    }
    std::vector<MomentTarget> targets;
    for (size_t r = 0; r < optimizer_.owned().size(); ++r) {
      const Range& range = optimizer_.owned()[r];
      targets.push_back(
          {range.begin,
           {moments.data() + optimizer_.moment_offset(m, r), static_cast<size_t>(range.size())}});
    }
    read_optimizer(folder, state, slices_, names[m], targets);
  }
  moments.write();
}

Progression Checkpointer::restore(const std::filesystem::path& folder,
                                  const std::vector<std::string>& allowed_changes) {
  Progression progression;
  CheckpointState state;
  std::optional<HostWeights> whole;
  run_on_all(parts_.communicator, [&] {
    state = read_state(folder);
    check_resumable(parts_, state, folder, residuals_.names(), allowed_changes);
    whole.emplace(parts_, memory_);
    if (parts_.writes_parameters()) read_model(folder, state, slices_, whole->data());
  });
  run_on_all(parts_.communicator, [&] {
    HostWeights& weights = *whole;
    restore_moments(state, folder, weights.data());
    residuals_.restore(state, folder, slices_);
    const uint64_t hash = hash_parameters(parts_.plan.layout, weights.data());
    if (hash != state.weights_hash)
      throw CheckpointError("{}: the weights hash to {:016x}, the state says {:016x}",
                            folder.string(),
                            hash,
                            state.weights_hash);
    if (parts_.writes_parameters()) weights.write();
    progression = {state.step,
                   state.best_metric,
                   state.best_step,
                   state.evals_since_best,
                   loss_scale_of(state, parts_.config)};
  });
  return progression;
}

}  // namespace lockstep
