// Catches: an evaluation, a checkpoint or an end that comes at another step than the config says,
// and an evaluation that counts for patience only because the process happened to end there.
#include "runtime/train/run_policy.h"

#include <iterator>

#include <gtest/gtest.h>

#include "runtime/train/step/schedule.h"

namespace lockstep::train {
namespace {

RunConfig config_of(int64_t steps) {
  RunConfig config;
  config.train.steps = steps;
  config.train.hash_every = 0;
  config.eval = {};
  config.eval.every = 10;
  config.eval.best = EvalConfig::Metric::kLoss;
  config.checkpoint = {};
  config.checkpoint.every = 20;
  config.checkpoint.at_end = true;
  config.checkpoint.keep_best = false;
  return config;
}

Evaluation with_loss(double loss) { return {.loss = loss}; }

TEST(RunPolicy, EvaluatesWhenDueAndAtTheEnd) {
  const RunConfig config = config_of(25);
  const RunPolicy policy(config, true);
  EXPECT_FALSE(policy.evaluates({.step = 9}));
  EXPECT_TRUE(policy.evaluates({.step = 10}));
  EXPECT_TRUE(policy.evaluates({.step = 25}));
  EXPECT_TRUE(policy.evaluates({.step = 7, .last = true}));
  EXPECT_FALSE(policy.evaluates({.step = 7, .last = true, .stop = true}));
  EXPECT_FALSE(RunPolicy(config, false).evaluates({.step = 10}));
}

TEST(RunPolicy, SavesAndHashesWhenDueAndWhenTheProcessEnds) {
  const RunConfig config = config_of(50);
  const RunPolicy policy(config, false);
  const auto next = [&](const RunPolicy::Position& position) {
    return policy.next(position, false, {});
  };
  EXPECT_FALSE(next({.step = 19}).save || next({.step = 19}).hash || next({.step = 19}).end);
  EXPECT_TRUE(next({.step = 20}).save && next({.step = 20}).hash);
  EXPECT_FALSE(next({.step = 20}).end);
  const RunPolicy::Next ended = next({.step = 31, .last = true});
  EXPECT_TRUE(ended.end && ended.save && ended.hash);
  EXPECT_FALSE(ended.preempted);
}

TEST(RunPolicy, ARequestToStopBeforeTheEndSavesWhateverTheConfig) {
  RunConfig config = config_of(50);
  config.checkpoint.every = 0;
  config.checkpoint.at_end = false;
  const RunPolicy policy(config, false);
  const RunPolicy::Next stopped = policy.next({.step = 7, .stop = true}, false, {});
  EXPECT_TRUE(stopped.end && stopped.save && stopped.preempted);
  const RunPolicy::Next done = policy.next({.step = 50, .last = true, .stop = true}, false, {});
  EXPECT_TRUE(done.end && done.hash);
  EXPECT_FALSE(done.save || done.preempted);
}

TEST(RunPolicy, TheBestIsSavedAndPatienceRunsOut) {
  RunConfig config = config_of(100);
  config.checkpoint.keep_best = true;
  config.eval.early_stop_patience = 2;
  const RunPolicy policy(config, true);
  Progression progression;
  const auto judge = [&](int64_t step, double loss, bool last = false) {
    const RunPolicy::Position position = {.step = step, .last = last};
    policy.judge(with_loss(loss), position, progression);
    return policy.next(position, true, progression);
  };
  EXPECT_TRUE(judge(10, 3.0).save);
  EXPECT_FALSE(judge(30, 3.5).save);
  EXPECT_EQ(progression.best_step, 10);
  // Of an evaluation only because the process ends here nothing is noted.
  judge(33, 9.0, true);
  EXPECT_EQ(progression.evals_since_best, 1);
  EXPECT_FALSE(policy.out_of_patience(progression));
  const RunPolicy::Next stopped = judge(50, 3.0);
  EXPECT_TRUE(stopped.early_stopped && stopped.end);
}

TEST(RunPolicy, TheBestIsByTheTasksMetric) {
  RunConfig config = config_of(100);
  Progression progression;
  const auto judge = [&](int64_t step, metrics::TaskMetric metric, double value) {
    Evaluation evaluation;
    evaluation.task[metric] = value;
    RunPolicy(config, true).judge(evaluation, {.step = step}, progression);
    return progression.best_step;
  };
  config.eval.best = EvalConfig::Metric::kSpearman;
  EXPECT_EQ(judge(10, metrics::kSpearman, 0.5), 10);
  EXPECT_EQ(judge(20, metrics::kSpearman, 0.4), 10);
  EXPECT_EQ(judge(30, metrics::kSpearman, 0.6), 30);
  progression = {};
  config.eval.best = EvalConfig::Metric::kMeanAbsoluteError;
  EXPECT_EQ(judge(10, metrics::kMeanAbsoluteError, 0.5), 10);
  EXPECT_EQ(judge(20, metrics::kMeanAbsoluteError, 0.6), 10);
  EXPECT_EQ(judge(30, metrics::kMeanAbsoluteError, 0.4), 30);
}

// The rates of torch.optim.lr_scheduler.ReduceLROnPlateau(factor=0.5, patience=2, threshold=0,
// min_lr=0.1) after each of these losses.
TEST(RunPolicy, ThePlateauIsPyTorchs) {
  RunConfig config = config_of(1000);
  config.schedule.kind = ScheduleConfig::Kind::kPlateau;
  config.schedule.lr = 0.5f;
  config.schedule.min_lr = 0.1f;
  config.schedule.patience = 2;
  config.schedule.plateau_factor = 0.5f;
  const RunPolicy policy(config, true);
  Progression progression;
  const double losses[] = {3, 2, 2.5, 2.5, 2, 1.9, 2, 2, 2, 1.95, 3, 3, 3, 1.8, 2, 2, 2};
  const double rates[] = {0.5,
                          0.5,
                          0.5,
                          0.5,
                          0.25,
                          0.25,
                          0.25,
                          0.25,
                          0.125,
                          0.125,
                          0.125,
                          0.1,
                          0.1,
                          0.1,
                          0.1,
                          0.1,
                          0.1};
  for (size_t i = 0; i < std::size(losses); ++i) {
    const auto step = static_cast<int64_t>(10 * (i + 1));
    policy.judge(with_loss(losses[i]), {.step = step}, progression);
    EXPECT_NEAR(learning_rate(config.schedule, step, 1000, progression.rate_falls), rates[i], 1e-8)
        << i;
  }
  // At the end of the run alone.
  config.train.steps = 175;
  const Progression before = progression;
  policy.judge(with_loss(9), {.step = 175}, progression);
  EXPECT_EQ(progression.plateau_evals, before.plateau_evals);
}

TEST(RunPolicy, TheClockAsksForCheckpointsToo) {
  RunConfig config = config_of(100);
  config.checkpoint.every_minutes = 5;
  const RunPolicy policy(config, false);
  EXPECT_TRUE(policy.next({.step = 7, .save_due = true}, false, {}).save);
  EXPECT_FALSE(policy.next({.step = 8}, false, {}).save);
}

TEST(RunPolicy, CopiesAreMadeWhereNoCheckpointIs) {
  RunConfig config = config_of(100);
  config.checkpoint.every = 10;
  config.checkpoint.local.every = 5;
  const RunPolicy policy(config, false);
  const RunPolicy::Next copied = policy.next({.step = 5}, false, {});
  EXPECT_TRUE(copied.save == checkpoint::SaveTo::kHosts && copied.hash);
  EXPECT_EQ(policy.next({.step = 10}, false, {}).save, checkpoint::SaveTo::kRunFolder);
  EXPECT_EQ(policy.next({.step = 15, .stop = true}, false, {}).save,
            checkpoint::SaveTo::kRunFolder);
  EXPECT_FALSE(policy.next({.step = 16}, false, {}).save);
}

TEST(RunPolicy, TrainsToTheStepAskedForButNotBeyondTheEnd) {
  const RunConfig config = config_of(25);
  const RunPolicy policy(config, false);
  EXPECT_EQ(policy.last_step(-1), 25);
  EXPECT_EQ(policy.last_step(0), 0);
  EXPECT_EQ(policy.last_step(7), 7);
  EXPECT_EQ(policy.last_step(70), 25);
}

}  // namespace
}  // namespace lockstep::train
