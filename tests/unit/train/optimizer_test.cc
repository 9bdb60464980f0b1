// Catches: a rank that updates elements it does not own or leaves out some it does, moments at the
// wrong place, and decay on parameters that are not decayed.
#include "runtime/train/step/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/cpu/backend.h"

namespace lockstep::train {
namespace {

plan::ParameterLayout make_layout() {
  plan::ParameterLayout layout;
  layout.slots.push_back({{.decay = true}, "weight", {700}, 0, 700});
  layout.slots.push_back({{.decay = false}, "bias", {100}, 704, 100});
  layout.slots.push_back({{.decay = true}, "second", {300}, 816, 300});
  layout.elements = collectives::padded_elements(1116, 4);
  return layout;
}

// Two steps on every rank's ranges, as `ranks` ranks would do them one after the other.
std::vector<float> train(const OptimizerConfig& config, int ranks) {
  const plan::ParameterLayout layout = make_layout();
  const auto buckets = collectives::make_buckets({0, layout.elements}, 4, 512);
  const size_t elements = static_cast<size_t>(layout.elements);
  std::vector<float> parameters(elements, 1.0f), gradients(elements);
  for (size_t i = 0; i < elements; ++i) gradients[i] = std::sin(static_cast<float>(i));
  const auto backend = cpu::make_backend();
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<float> moments(3 * elements / static_cast<size_t>(ranks));
    const OptimizerMemory memory = {.weights = {reinterpret_cast<std::byte*>(parameters.data())},
                                    .gradients = {gradients.data()},
                                    .moments = moments.data()};
    Optimizer optimizer(
        config, layout, collectives::owned_ranges(buckets, rank, ranks), *backend, memory);
    for (int step = 1; step <= 2; ++step) {
      optimizer.prepare(0.1, 0.5, step);
      optimizer.update();
    }
  }
  return parameters;
}

std::vector<OptimizerConfig> optimizers() {
  OptimizerConfig sgd, momentum, adam, adamw, lion;
  sgd.kind = SgdConfig{.momentum = 0, .nesterov = false, .weight_decay = 0.1f};
  momentum.kind = SgdConfig{.momentum = 0.9f, .nesterov = true, .weight_decay = 0.1f};
  adam.kind = AdamConfig{.weight_decay = 0.1f};
  adamw.kind = AdamwConfig{.weight_decay = 0.1f};
  lion.kind = LionConfig{.weight_decay = 0.1f};
  OptimizerConfig rmsprop, centred, adagrad, amsgrad;
  rmsprop.kind = RmspropConfig{.weight_decay = 0.1f, .momentum = 0.9f};
  centred.kind = RmspropConfig{.weight_decay = 0.1f, .momentum = 0.9f, .centred = true};
  adagrad.kind = AdagradConfig{.lr_decay = 0.1f, .weight_decay = 0.1f};
  amsgrad.kind = AdamwConfig{.weight_decay = 0.1f, .amsgrad = true};
  return {sgd, momentum, adam, adamw, lion, rmsprop, centred, adagrad, amsgrad};
}

TEST(Optimizer, SharesOfAnyNumberOfRanksMakeTheSameStep) {
  for (const OptimizerConfig& config : optimizers()) {
    const std::vector<float> alone = train(config, 1);
    for (int ranks : {2, 4})
      EXPECT_EQ(train(config, ranks), alone) << optimizer_name(config) << " on " << ranks;
  }
}

TEST(Optimizer, DecaysOnlyWhatIsDecayed) {
  for (OptimizerConfig config : optimizers()) {
    const std::vector<float> some = train(config, 2);
    config.decay_bias_and_norm = true;
    const std::vector<float> all = train(config, 2);
    std::visit([](auto& kind) { kind.weight_decay = 0; }, config.kind);
    const std::vector<float> none = train(config, 2);
    for (size_t i = 0; i < 1116; ++i) {
      if (i >= 704 && i < 804) {
        EXPECT_EQ(some[i], none[i]) << i;
      } else if (i < 700 || i >= 816) {
        EXPECT_EQ(some[i], all[i]) << i;
      }
    }
    EXPECT_NE(some[5], none[5]);
    EXPECT_NE(some[710], all[710]);
  }
}

// A group's tensors move as all do in a run with that rate and weight decay.
TEST(Optimizer, GroupsHaveRatesAndWeightDecayOfTheirOwn) {
  const auto train_with = [](const OptimizerConfig& config, double lr, bool grouped, int ranks) {
    plan::ParameterLayout layout = make_layout();
    if (grouped) {
      layout.slots[1].weight_decay = 0.25f;  // the bias, which is not decayed without
      layout.slots[2].lr_scale = 0.5f;
      layout.slots[2].weight_decay = 0;
    }
    const auto buckets = collectives::make_buckets({0, layout.elements}, 4, 512);
    const auto elements = static_cast<size_t>(layout.elements);
    std::vector<float> parameters(elements, 1.0f), gradients(elements);
    for (size_t i = 0; i < elements; ++i) gradients[i] = std::sin(static_cast<float>(i));
    const auto backend = cpu::make_backend();
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<float> moments(3 * elements / static_cast<size_t>(ranks));
      Optimizer optimizer(config,
                          layout,
                          collectives::owned_ranges(buckets, rank, ranks),
                          *backend,
                          {.weights = {reinterpret_cast<std::byte*>(parameters.data())},
                           .gradients = {gradients.data()},
                           .moments = moments.data()});
      for (int step = 1; step <= 3; ++step) {
        optimizer.prepare(lr, 0.5, step);
        optimizer.update();
      }
    }
    return parameters;
  };
  const auto part = [](const std::vector<float>& all, int64_t begin, int64_t elements) {
    return std::vector<float>(all.begin() + begin, all.begin() + begin + elements);
  };
  for (const OptimizerConfig& config : optimizers()) {
    const std::vector<float> grouped = train_with(config, 0.1, true, 1);
    EXPECT_EQ(train_with(config, 0.1, true, 4), grouped) << optimizer_name(config);
    EXPECT_EQ(part(grouped, 0, 700), part(train_with(config, 0.1, false, 1), 0, 700));
    OptimizerConfig other = config;
    other.decay_bias_and_norm = true;
    std::visit([](auto& kind) { kind.weight_decay = 0.25f; }, other.kind);
    EXPECT_EQ(part(grouped, 704, 100), part(train_with(other, 0.1, false, 1), 704, 100));
    std::visit([](auto& kind) { kind.weight_decay = 0; }, other.kind);
    EXPECT_EQ(part(grouped, 816, 300), part(train_with(other, 0.05, false, 1), 816, 300));
  }
}

TEST(Optimizer, RunningStatisticsAreAveragedOnAnyNumberOfRanks) {
  plan::ParameterLayout layout = make_layout();
  layout.lanes = 4;
  layout.statistics_begin = layout.elements;
  layout.slots.push_back({{.running_momentum = 0.25f}, "running_mean", {70}, layout.elements, 70});
  layout.elements += collectives::padded_elements(70, 4);
  const int64_t other = layout.elements;  // of another norm
  layout.slots.push_back({{.running_momentum = 0.5f}, "other.running_mean", {30}, other, 30});
  layout.elements += collectives::padded_elements(30, 4);
  std::vector<collectives::Range> buckets =
      collectives::make_buckets({0, layout.statistics_begin}, 4, 512);
  buckets.push_back({layout.statistics_begin, layout.elements});
  for (OptimizerConfig config : optimizers()) {
    config.decay_bias_and_norm = true;
    for (int ranks : {1, 2, 4}) {
      const auto size = static_cast<size_t>(layout.elements);
      std::vector<float> parameters(size, 1.0f), gradients(size, 8.0f);
      const auto backend = cpu::make_backend();
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<float> moments(3 * size / static_cast<size_t>(ranks), 0.0f);
        Optimizer optimizer(config,
                            layout,
                            collectives::owned_ranges(buckets, rank, ranks),
                            *backend,
                            {.weights = {reinterpret_cast<std::byte*>(parameters.data())},
                             .gradients = {gradients.data()},
                             .moments = moments.data()});
        optimizer.prepare(0.1, 0.001, 1);
        optimizer.update();
        // The last owned range is of statistics: nothing is kept of their "gradients".
        const auto kept = static_cast<size_t>(optimizer.kept(0).back().local);
        for (size_t i = kept; optimizer.moments() > 0 && i < kept + 64; ++i)
          EXPECT_EQ(moments[i], 0) << i;
      }
      for (size_t i = 0; i < 70; ++i)  // 0.75 * 1 + 0.25 * 8 / 4
        EXPECT_EQ(parameters[static_cast<size_t>(layout.statistics_begin) + i], 1.25f);
      EXPECT_LT(parameters[0], 1.0f);
    }
  }
}

TEST(Optimizer, OneSgdStepByHand) {
  OptimizerConfig config;
  config.kind = SgdConfig{};
  const plan::ParameterLayout layout = make_layout();
  const auto backend = cpu::make_backend();
  std::vector<float> parameters(static_cast<size_t>(layout.elements), 2.0f),
      gradients(parameters.size(), 4.0f);
  Optimizer optimizer(config,
                      layout,
                      {{0, layout.elements}},
                      *backend,
                      {.weights = {reinterpret_cast<std::byte*>(parameters.data())},
                       .gradients = {gradients.data()}});
  optimizer.prepare(0.25, 0.5, 1);
  optimizer.update();
  for (float p : parameters) ASSERT_EQ(p, 1.5f);  // 2 - 0.25 * (4 * 0.5)
}

}  // namespace
}  // namespace lockstep::train
