#include "runtime/train/checkpoints/checkpointer.h"

#include <utility>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/time.h"
#include "runtime/checkpoint/writer.h"
#include "runtime/config/paths.h"
#include "runtime/metrics/environment.h"
#include "runtime/plan/moment_layout.h"
#include "runtime/train/checkpoints/class_names.h"
#include "runtime/train/checkpoints/initialize.h"
#include "runtime/train/checkpoints/resume_check.h"
#include "runtime/train/step/weight_average.h"

namespace lockstep {

Checkpointer::Checkpointer(const RunContext& context, const RunMemory& memory, Optimizer& optimizer)
    : context_(context),
      memory_(memory),
      optimizer_(optimizer),
      residuals_(context, memory),
      local_(context),
      root_(context.run_dir / "checkpoints"),
      slices_(named_slices(context.plan.layout)),
      content_(context, memory, optimizer, residuals_) {}

CheckpointState Checkpointer::state_for(const Progression& progression,
                                        uint64_t weights_hash) const {
  const RunConfig& config = context_.config;
  CheckpointState state;
  state.step = progression.step;
  state.samples = progression.step * config.train.global_batch;
  state.seed = config.seed;
  state.lanes = context_.plan.lanes;
  state.ranks = context_.communicator.size();
  state.global_batch = config.train.global_batch;
  state.lockstep_version = lockstep_version();
  state.weights_hash = weights_hash;
  state.config_hash = hash_text(recorded_text(config));
  state.optimizer = optimizer_name(config.optimizer);
  state.moments = kept_arrays(config);
  for (const std::string& name : residuals_.names()) state.moments.push_back(name);
  state.flat_elements = context_.plan.layout.elements;
  state.frozen_elements = context_.plan.layout.frozen_elements;
  if (const auto* muon = std::get_if<MuonConfig>(&config.optimizer.kind)) {
    for (const size_t slot : muon_slots(*muon, context_.plan.layout))
      state.one_moment.push_back(context_.plan.layout.slots[slot].name);
  }
  state.layout = slices_;
  state.extra = sample_order(context_);
  state.extra[kConfigKey] = recorded_text(config);
  state.extra[kContentKey] = to_hex(context_.data.summary.train_checksum);
  keep_class_names(context_.data.summary.class_names, state);
  if (config.execution.precision == Precision::kFp16 || progression.loss_scale.skipped > 0)
    state.extra[kLossScaleKey] = fmt::format("{} {} {}",
                                             progression.loss_scale.value,
                                             progression.loss_scale.good_steps,
                                             progression.loss_scale.skipped);
  if (config.schedule.kind == ScheduleConfig::Kind::kPlateau)
    state.extra[kPlateauKey] =
        fmt::format("{} {}", progression.plateau_evals, progression.rate_falls);
  state.best_metric = progression.best_metric;
  state.best_step = progression.best_step;
  state.evals_since_best = progression.evals_since_best;
  return state;
}

Checkpointer::~Checkpointer() {
  cancelled_ = true;
  task_.wait();
  if (saving() && writer_ && leads()) writer_->abandon();
}

// Whether this rank makes, commits and removes folders.
bool Checkpointer::leads() const {
  return where_ == SaveTo::kHosts ? local_.leads() : context_.communicator.rank() == 0;
}

CheckpointWriter::Reach Checkpointer::reach() const {
  return where_ == SaveTo::kHosts ? CheckpointWriter::Reach::kThisHost
                                  : CheckpointWriter::Reach::kAllHosts;
}

// Collective; throws the same AgreedError on all ranks.
void Checkpointer::on_leaders(const std::function<void()>& action) const {
  if (where_ == SaveTo::kRunFolder) return run_on_root(context_.communicator, action);
  run_on_all(context_.communicator, [&] {
    if (leads()) action();
  });
}

const std::filesystem::path& Checkpointer::root() const {
  return where_ == SaveTo::kHosts ? local_.root() : root_;
}

int64_t Checkpointer::bytes() const {
  const auto kept = static_cast<int64_t>(kept_arrays(context_.config).size());
  const ParameterLayout& layout = context_.plan.layout;
  int64_t left_out = 0;
  for (const Range& range : one_moment_ranges(context_.config.optimizer, layout))
    left_out += range.size();
  return (layout.elements + kept * layout.trained() - left_out) *
         static_cast<int64_t>(sizeof(float));
}

std::optional<SaveOutcome> Checkpointer::save(const Progression& progression,
                                              uint64_t weights_hash,
                                              SaveTo where,
                                              bool in_background) {
  LOCKSTEP_CHECK(!saving());
  where_ = where;
  in_background_ = in_background && context_.plan.has_snapshot();
  phase_ = Phase::kWriting;
  begin_ms_ = now_ms();
  try {
    begin(progression, weights_hash);
  } catch (const AgreedError& error) {
    return end(error);
  }
  if (in_background_) return std::nullopt;
  return finish();
}

void Checkpointer::begin(const Progression& progression, uint64_t weights_hash) {
  state_ = state_for(progression, weights_hash);
  is_best_ = context_.config.checkpoint.keep_best && progression.best_metric.has_value() &&
             progression.best_step == state_.step;
  on_leaders([&] {
    context_.require_folder();
    context_.check_generation();
    writer_.emplace(CheckpointWriter::begin(root(), state_.step, reach(), own_generation().number));
  });
  content_.collect(in_background_);
  if (!in_background_) return task_.run([this] { write_part(); });
  copied_.store(false, std::memory_order_relaxed);
  task_.start([this] {
    content_.copy();
    copied_.store(true, std::memory_order_release);
    copied_.notify_one();
    write_part();
  });
}

void Checkpointer::finish_copy() { copied_.wait(false, std::memory_order_acquire); }

void Checkpointer::write_part() {
  const Communicator& communicator = context_.communicator;
  context_.check_generation();
  if (!writer_)
    writer_.emplace(CheckpointWriter::join(root(), state_.step, reach(), own_generation().number));
  writer_->cancel_with(cancelled_);
  if (content_.weights() != nullptr)
    model_record_ = writer_->write_model(slices_, content_.weights());
  if (state_.moments.empty()) return;
  shard_record_ =
      writer_->write_optimizer_shard(communicator.rank(), communicator.size(), content_.shards());
}

std::optional<SaveOutcome> Checkpointer::advance() {
  LOCKSTEP_CHECK(saving());
  try {
    return take_step();
  } catch (const AgreedError& error) {
    return end(error);
  }
}

std::optional<SaveOutcome> Checkpointer::take_step() {
  if (phase_ == Phase::kCommitting) {
    on_leaders([&] { task_.finish(); });
    return end(std::nullopt);
  }
  run_on_all(context_.communicator, [&] { task_.finish(); });
  content_.release();
  gather_records();
  on_leaders([&] { context_.require_folder(); });
  phase_ = Phase::kCommitting;
  if (!leads()) return std::nullopt;
  if (in_background_) {
    task_.start([this] { commit(); });
  } else {
    task_.run([this] { commit(); });
  }
  return std::nullopt;
}

SaveOutcome Checkpointer::finish() {
  while (true) {
    if (const std::optional<SaveOutcome> outcome = advance()) return *outcome;
  }
}

// Every rank learns of all files; the model's own record comes first.
void Checkpointer::gather_records() {
  for (const std::optional<FileRecord>& mine : {model_record_, shard_record_}) {
    const std::string text = mine ? serialize(*mine) : "";
    for (const std::string& record : gather_texts(context_.communicator, text))
      if (!record.empty()) state_.files.push_back(parse_file_record(record));
  }
}

// Completes the checkpoint and removes old ones. Only for ranks with leads().
void Checkpointer::commit() {
  const auto check = [this] { context_.check_generation(); };
  writer_->call_before_commit(check);
  writer_->commit(state_);
  check();
  if (where_ == SaveTo::kHosts)
    return prune(root(), context_.config.checkpoint.local.keep, std::nullopt, state_.step, check);
  if (is_best_) write_best(root_, state_.step);
  const std::optional<CheckpointEntry> best = read_best(root_);
  prune(root_,
        context_.config.checkpoint.keep_last,
        best && context_.config.checkpoint.keep_best ? std::optional(best->step) : std::nullopt,
        state_.step,
        check);
}

SaveOutcome Checkpointer::end(std::optional<AgreedError> error) {
  if (error && writer_ && leads()) writer_->abandon();
  SaveOutcome outcome = {
      state_.step, where_, state_.weights_hash, (now_ms() - begin_ms_) / 1000, std::move(error)};
  content_.release();
  writer_.reset();
  model_record_.reset();
  shard_record_.reset();
  state_ = {};
  phase_ = Phase::kIdle;
  return outcome;
}

}  // namespace lockstep
