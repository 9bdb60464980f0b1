#include "runtime/train/trainer.h"

#include <cmath>
#include <cstdlib>

#include "collectives/agree/agreement.h"
#include "runtime/base/flight_recorder.h"
#include "runtime/base/host.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/train/guard/not_finite_text.h"
#include "runtime/train/state/begin_state.h"
#include "runtime/train/step/schedule.h"
#include "runtime/train/step/stop_signal.h"

namespace lockstep::train {

using Span = metrics::Timeline::Span;

namespace {

checkpoint::SavedRun saved_run(const RunContext& context) {
  return {.communicator = context.communicator,
          .config = context.config.checkpoint,
          .run_dir = context.run_dir,
          .generation = own_generation().number,
          .check_generation = [&context] { context.check_generation(); },
          .require_folder = [&context] { context.require_folder(); },
          .write_small_file =
              [&context](const auto& file, const std::string& text) {
                if (context.folder == nullptr) return write_file_atomically(file, text);
                context.folder->optional_files().write(file, text);
              }};
}

}  // namespace

Trainer::Trainer(const RunContext& context)
    : context_(context),
      memory_(
          allocate_run(context.backend, context.plan, context.node, context.communicator.rank())),
      step_(context, memory_),
      content_(context, memory_, step_.update().optimizer()),
      saving_(saved_run(context), content_),
      agreement_(context, memory_, saving_),
      guard_(context, step_),
      not_finite_(context, step_),
      policy_(context.config, context.graphs.evaluation.has_value()) {
  if (context.graphs.evaluation.has_value())
    evaluator_ = std::make_unique<Evaluator>(context, memory_, &step_.exchange().forward_gather());
}

void Trainer::start(const std::string& resume, const std::vector<std::string>& allowed_changes) {
  allowed_changes_ = allowed_changes;
  if (!resume_from(resume)) {
    progression_ = {};
    start_from_scratch(context_, memory_, step_.update());
  }
  collectives::run_on_root(context_.communicator, [&] { context_.require_folder(); });
  hosts_ = collectives::gather_texts(context_.communicator, host_name());
  timeline_ = RunTimeline::make(context_);
  step_.start(progression_.step, hosts_, timeline_.get());
}

bool Trainer::resume_from(const std::string& resume) {
  return saving_.resume(resume, [&](const std::filesystem::path& folder, bool on_hosts) {
    progression_ = restore_state(context_, memory_, content_, folder, on_hosts, allowed_changes_);
    step_.update().loss_scale().restore(progression_.loss_scale);
    return progression_.step;
  });
}

TrainResult Trainer::run(int64_t max_steps) {
  const FlightScope training(FlightPhase::kTraining);
  last_ = policy_.last_step(max_steps);
  double earlier_joules = 0;
  collectives::run_on_root(context_.communicator, [&] {
    for (const std::string& warning : context_.data.summary.warnings) log_warn("{}", warning);
    reporter_ = std::make_unique<Reporter>(context_, progression_.step, last_);
    if (progression_.step > 0)
      earlier_joules = metrics::energy_total_in(context_.run_dir / "metrics.jsonl");
    saving_.start_clock(checkpoint::run_clock_options(
        context_.config, static_cast<double>(content_.bytes()), [](const char* name) {
          return std::getenv(name);
        }));
  });
  devices_ = std::make_unique<DeviceWatch>(context_.communicator,
                                           context_.monitor,
                                           static_cast<double>(context_.plan.memory.device_bytes()),
                                           hosts_);
  energy_ = std::make_unique<EnergyWatch>(
      context_.communicator, context_.monitor, hosts_, context_.powercap, earlier_joules);
  RunTimes times(last_ - progression_.step);
  try {
    train(times);
  } catch (const collectives::AgreedError&) {
    saving_.finish_before_exit();
    throw;
  }
  collectives::run_on_root(context_.communicator, [&] { reporter_->finish(!result_.preempted); });
  // else the timeline of the previous run stays
  if (timeline_ && result_.loss) timeline_->write(hosts_);
  result_.step = progression_.step;
  if (result_.weights_hash == 0) result_.weights_hash = weights_hash();  // no step was left to do
  result_.rank_times = times.gather(context_.communicator, hosts_);
  result_.devices = devices_->reports();
  result_.energy = energy_->report();
  result_.best_metric = progression_.best_metric;
  result_.best_step = progression_.best_step;
  result_.skipped_steps = progression_.loss_scale.skipped;
  result_.failed_checkpoints = saving_.failed();
  return result_;
}

void Trainer::train(RunTimes& times) {
  result_.early_stopped = policy_.out_of_patience(progression_);
  bool keep_going = progression_.step < last_ && !result_.early_stopped;
  step_.clock().start_step();
  step_.clock().ranks_met();
  while (keep_going) {
    try {
      keep_going = advance(times);
    } catch (const NumericFault& fault) {
      roll_back(fault);
    }
  }
  saving_.finish();
}

// Runs a step and what follows it. Returns whether another one should be run.
bool Trainer::advance(RunTimes& times) {
  StepClock& clock = step_.clock();
  metrics::StepRecord record = step();
  result_.train_seconds += record.step_ms / 1000;
  result_.loss = record.loss;
  times.add(record);
  energy_->count_step();
  first_steps_.watch(context_, record);
  const RunPolicy::Next next = follow_up(record, record.step == last_);
  if (record.eval_loss || record.weights_hash) clock.ranks_met();
  // Reporting a step counts in the time of the next one; evaluation and checkpoints do not.
  clock.start_step();
  if (next.end || (all_flags_ & TrainingStep::kDeviceStatesDue) != 0)
    record.devices = devices_->gather(next.end);
  if (next.end || (all_flags_ & TrainingStep::kEnergyDue) != 0)
    record.energy = energy_->gather(next.end);
  if (next.end && context_.predicted_step_ms > 0 && times.mean_step_ms() > 0)
    record.forecast_error = context_.predicted_step_ms / times.mean_step_ms() - 1;
  if (reporter_) reporter_->report(record, next.save == checkpoint::SaveTo::kRunFolder);
  if (context_.page != nullptr && saving_.written() > 0)
    context_.page->set_checkpoint(*saving_.good_step());
  if (next.save) {
    const double save_start = now_ms();
    save(record, next);
    const double stall_ms = now_ms() - save_start;
    clock.start_ms += stall_ms;
    clock.ranks_met();
    result_.checkpoint_stall_seconds += stall_ms / 1000;
  }
  result_.weights_hash = record.weights_hash.value_or(0);
  return !next.end;
}

// Resumes from the newest checkpoint if the policy is to roll back, there is one, and this has not
// been tried since it was written. Otherwise throws the fault.
void Trainer::roll_back(const NumericFault& fault) {
  if (fault.policy() != FaultPolicy::kRollBack) throw fault;
  saving_.finish_before_exit();
  if (rolled_back_at_ == saving_.written() || !resume_from("auto")) throw fault;
  rolled_back_at_ = saving_.written();
  skipped_in_a_row_ = 0;
  if (context_.communicator.rank() == 0)
    log_warn("{}; going back to step {}", fault.what(), progression_.step);
  step_.start(progression_.step, hosts_, timeline_.get());
  reporter_.reset();
  collectives::run_on_root(context_.communicator, [&] {
    reporter_ = std::make_unique<Reporter>(context_, progression_.step, last_);
  });
  step_.clock().start_step();
  step_.clock().ranks_met();
}

std::vector<metrics::StepRecord> Trainer::replay(int64_t last) {
  std::vector<metrics::StepRecord> records;
  StepClock& clock = step_.clock();
  clock.ranks_met();
  while (progression_.step < last && (all_flags_ & TrainingStep::kStop) == 0) {
    clock.start_step();
    records.push_back(step());
    // With PLATEAU the learning rate depends on the evaluations.
    const RunPolicy::Position position = {.step = progression_.step};
    if (context_.config.schedule.kind != ScheduleConfig::Kind::kPlateau ||
        !policy_.evaluates(position))
      continue;
    evaluate(records.back());
    judge(position);
    clock.ranks_met();
  }
  if (!records.empty()) records.back().weights_hash = weights_hash();
  return records;
}

std::vector<double> Trainer::time_steps(int64_t steps) {
  std::vector<double> times;
  StepClock& clock = step_.clock();
  clock.ranks_met();
  while (static_cast<int64_t>(times.size()) < steps && (all_flags_ & TrainingStep::kStop) == 0) {
    clock.start_step();
    times.push_back(step().step_ms);
  }
  step_.exchange().gather_parameters();  // nothing stays in flight
  context_.backend.synchronize();
  return times;
}

metrics::StepRecord Trainer::step() {
  step_.update().set_rate_falls(progression_.rate_falls);
  const TrainingStep::Outcome outcome = step_.run(progression_.step, [this] { return flags(); });
  all_flags_ = outcome.flags;
  if (outcome.damaged) {
    const std::string what = guard_.describe(progression_.step);
    saving_.finish_before_exit();
    agreement_.refuse_damage(what);
  }
  if ((all_flags_ & TrainingStep::kFailed) != 0)
    collectives::run_on_root(context_.communicator, [&] { reporter_->check(); });
  ++progression_.step;
  progression_.loss_scale = step_.update().loss_scale().state();
  metrics::StepRecord record = outcome.record;
  if (outcome.diverged)
    handle_not_finite(record);
  else
    skipped_in_a_row_ = 0;
  if ((all_flags_ & TrainingStep::kSaving) == 0) saving_.advance();
  record.failed_checkpoints = saving_.failed();
  return record;
}

// The step has changed nothing: it is skipped, or the run ends with an error.
void Trainer::handle_not_finite(const metrics::StepRecord& record) {
  const NotFiniteCause cause = not_finite_.describe();
  const std::string what = fmt::format("loss is {} and the gradient's norm is {}: {}",
                                       number_text(record.loss),
                                       number_text(record.grad_norm),
                                       cause.text);
  const GuardConfig& guard = context_.config.guard;
  if (guard.on_not_finite != FaultPolicy::kSkipStep || ++skipped_in_a_row_ > guard.max_skips) {
    saving_.finish_before_exit();  // the checkpoint in progress is good
    agreement_.refuse_not_finite(record.step, what, cause.remedy);
  }
  if (context_.communicator.rank() == 0)
    log_warn("step {}: {}; the step is skipped", record.step, what);
}

// This rank's flags. First waits until a checkpoint that is being copied is copied, because the
// step is about to change the state.
int64_t Trainer::flags() {
  const double wait_start = now_ms();
  saving_.finish_copy();
  result_.checkpoint_stall_seconds += (now_ms() - wait_start) / 1000;
  int64_t flags = 0;
  const auto raise = [&](TrainingStep::Flag flag, bool raised) {
    if (raised) flags |= flag;
  };
  raise(TrainingStep::kFailed, reporter_ && reporter_->failed());
  raise(TrainingStep::kSaving, saving_.part_under_way());
  raise(TrainingStep::kStop, stop_requested() || saving_.must_stop());
  raise(TrainingStep::kSaveDue, saving_.due());
  const int64_t step = progression_.step + 1, log_every = context_.config.train.log_every;
  raise(TrainingStep::kDeviceStatesDue,
        devices_ && devices_->is_due(step, log_every, step == last_));
  raise(TrainingStep::kEnergyDue, energy_ && energy_->is_due(step, log_every, step == last_));
  return flags;
}

// Evaluates if that is due, completes the record, and returns what else is to be done.
RunPolicy::Next Trainer::follow_up(metrics::StepRecord& record, bool last) {
  const RunPolicy::Position position = {record.step,
                                        last,
                                        (all_flags_ & TrainingStep::kStop) != 0,
                                        (all_flags_ & TrainingStep::kSaveDue) != 0};
  const bool evaluated = policy_.evaluates(position);
  if (evaluated) {
    evaluate(record);
    judge(position);
  }
  const RunPolicy::Next next = policy_.next(position, evaluated, progression_);
  result_.early_stopped = next.early_stopped;
  result_.preempted = next.preempted;
  if (next.save || next.end) {
    step_.exchange().gather_parameters();
    const std::string damage = guard_.examine(record.step);
    if (!damage.empty()) agreement_.refuse_damage(damage);
  }
  if (next.hash) record.weights_hash = weights_hash();
  return next;
}

void Trainer::judge(const RunPolicy::Position& position) {
  const int64_t falls = progression_.rate_falls;
  policy_.judge(*result_.evaluation, position, progression_);
  if (progression_.rate_falls == falls) return;
  const ScheduleConfig& schedule = context_.config.schedule;
  log_record(fmt::format(
      "step {}: no better evaluation since step {}: the learning rate is reduced to {:.4g}",
      position.step,
      progression_.best_step,
      learning_rate(
          schedule, position.step, context_.config.train.steps, progression_.rate_falls)));
}

void Trainer::evaluate(metrics::StepRecord& record) {
  const FlightScope evaluating(FlightPhase::kEvaluation);
  step_.exchange().gather_parameters();
  Span span(spans(), "evaluate", "evaluation");
  step_.swap_average();
  const Evaluation evaluation = evaluator_->run();
  NotFiniteCause cause;
  if (!std::isfinite(evaluation.loss))
    cause = not_finite_.describe_evaluation(
        [&](exec::OpObserver& observer) { evaluator_->run_observed(observer); });
  step_.swap_average();
  result_.evaluation = evaluation;
  record.eval_loss = evaluation.loss;
  if (context_.model.has_accuracy()) record.eval_accuracy = evaluation.accuracy;
  record.eval_top5_accuracy = evaluation.top5;
  record.eval_perplexity = evaluation.perplexity;
  record.eval_task = evaluation.task;
  if (!std::isfinite(evaluation.loss))
    agreement_.refuse_not_finite(
        record.step,
        fmt::format("the evaluation's loss is {}: {}", number_text(evaluation.loss), cause.text),
        cause.remedy);
  log_record(fmt::format("step {}: loss {:.6f}, evaluation loss {:.6f}{}",
                         record.step,
                         record.loss,
                         evaluation.loss,
                         words_for(evaluation, context_.model)));
}

void Trainer::save(const metrics::StepRecord& record, const RunPolicy::Next& next) {
  const FlightScope saving(FlightPhase::kSaving);
  Span span(spans(), "checkpoint", "checkpoint");
  collectives::run_on_root(context_.communicator, [&] { reporter_->flush(); });
  saving_.save(content_.state(progression_, *record.weights_hash), *next.save, /*last=*/next.end);
}

uint64_t Trainer::weights_hash() {
  step_.exchange().gather_parameters();
  return agreement_.hash(progression_.step);
}

}  // namespace lockstep::train
