#include "runtime/checkpoint/run/checkpointer.h"

#include <utility>

#include "runtime/base/time.h"
#include "runtime/checkpoint/format/folder.h"

namespace lockstep::checkpoint {

Checkpointer::Checkpointer(const SavedRun& run, CheckpointSource& source, const LocalCopies& local)
    : run_(run), source_(source), local_(local), root_(run.run_dir / "checkpoints") {}

Checkpointer::~Checkpointer() {
  cancelled_ = true;
  task_.wait();
  if (saving() && save_->writer && save_->place.leads) save_->writer->abandon();
}

// Collective; throws the same AgreedError on all ranks.
void Checkpointer::on_leaders(const std::function<void()>& action) const {
  if (save_->where == SaveTo::kRunFolder)
    return collectives::run_on_root(run_.communicator, action);
  collectives::run_on_all(run_.communicator, [&] {
    if (save_->place.leads) action();
  });
}

std::optional<SaveOutcome> Checkpointer::save(CheckpointState state,
                                              SaveTo where,
                                              bool in_background) {
  LOCKSTEP_CHECK(!saving());
  in_background = in_background && source_.has_snapshot();
  using Reach = CheckpointWriter::Reach;
  Place place = where == SaveTo::kHosts
                    ? Place{local_.root(), local_.leads(), Reach::kThisHost}
                    : Place{root_, run_.communicator.rank() == 0, Reach::kAllHosts};
  save_.emplace(Save{std::move(state), where, std::move(place), in_background, now_ms()});
  try {
    begin();
  } catch (const collectives::AgreedError& error) {
    return end(error);
  }
  if (in_background) return std::nullopt;
  return finish();
}

void Checkpointer::begin() {
  on_leaders([&] {
    run_.require_folder();
    run_.check_generation();
    const Place& place = save_->place;
    save_->writer.emplace(
        CheckpointWriter::begin(place.root, save_->state.step, place.reach, run_.generation));
  });
  source_.collect(save_->in_background);
  if (!save_->in_background) return task_.run([this] { write_part(); });
  copied_.store(false, std::memory_order_relaxed);
  task_.start([this] {
    source_.copy();
    copied_.store(true, std::memory_order_release);
    copied_.notify_one();
    write_part();
  });
}

void Checkpointer::write_part() {
  const collectives::Communicator& communicator = run_.communicator;
  run_.check_generation();
  std::optional<CheckpointWriter>& writer = save_->writer;
  const Place& place = save_->place;
  if (!writer)
    writer.emplace(
        CheckpointWriter::join(place.root, save_->state.step, place.reach, run_.generation));
  writer->cancel_with(cancelled_);
  if (source_.weights() != nullptr)
    save_->model_record = writer->write_model(save_->state.layout, source_.weights());
  if (save_->state.moments.empty()) return;
  save_->shard_record =
      writer->write_optimizer_shard(communicator.rank(), communicator.size(), source_.shards());
}

std::optional<SaveOutcome> Checkpointer::advance() {
  LOCKSTEP_CHECK(saving());
  try {
    return take_step();
  } catch (const collectives::AgreedError& error) {
    return end(error);
  }
}

std::optional<SaveOutcome> Checkpointer::take_step() {
  if (save_->committing) {
    on_leaders([&] { task_.finish(); });
    return end(std::nullopt);
  }
  collectives::run_on_all(run_.communicator, [&] { task_.finish(); });
  source_.release();
  gather_records();
  on_leaders([&] { run_.require_folder(); });
  save_->committing = true;
  if (!save_->place.leads) return std::nullopt;
  if (save_->in_background) {
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
  for (const std::optional<FileRecord>& mine : {save_->model_record, save_->shard_record}) {
    const std::string text = mine ? serialize(*mine) : "";
    for (const std::string& record : collectives::gather_texts(run_.communicator, text))
      if (!record.empty()) save_->state.files.push_back(parse_file_record(record));
  }
}

// Completes the checkpoint and removes old ones. Only on leaders.
void Checkpointer::commit() {
  const CheckpointState& state = save_->state;
  const CheckpointConfig& config = run_.config;
  save_->writer->call_before_commit(run_.check_generation);
  save_->writer->commit(state);
  run_.check_generation();
  if (save_->where == SaveTo::kHosts)
    return prune(
        save_->place.root, config.local.keep, std::nullopt, state.step, run_.check_generation);
  if (config.keep_best && state.best_metric && state.best_step == state.step)
    write_best(root_, state.step);
  const std::optional<CheckpointEntry> best = read_best(root_);
  prune(root_,
        config.keep_last,
        best && config.keep_best ? std::optional(best->step) : std::nullopt,
        state.step,
        run_.check_generation);
}

SaveOutcome Checkpointer::end(std::optional<collectives::AgreedError> error) {
  if (error && save_->writer && save_->place.leads) save_->writer->abandon();
  SaveOutcome outcome = {save_->state.step,
                         save_->where,
                         save_->state.weights_hash,
                         (now_ms() - save_->begin_ms) / 1000,
                         std::move(error)};
  source_.release();
  save_.reset();
  return outcome;
}

}  // namespace lockstep::checkpoint
