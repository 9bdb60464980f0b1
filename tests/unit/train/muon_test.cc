// Catches: a step that is not Muon's formula, matrices that are put together wrong from the slices
// of ranks, AdamW's part with another rate or decay, bits that depend on ranks, nodes, buckets,
// ZeRO stages or a resume, and combinations that are not refused.
#include <gtest/gtest.h>

#include <mutex>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/checkpoint/format/writer.h"
#include "runtime/train/step/optimizer.h"
#include "tests/reference/kernel_test.h"
#include "tests/reference/newton_schulz.h"
#include "tests/reference/optimizers.h"
#include "tests/reference/prepared.h"
#include "tests/reference/runs.h"

namespace lockstep::train {
namespace {

using test::kEps;

constexpr int kLanes = 4;
constexpr int64_t kSteps = 4;
constexpr double kScale = 0.5, kLr = 0.01;

OptimizerConfig muon() {
  OptimizerConfig config;
  config.kind = MuonConfig{.momentum = 0.9f, .weight_decay = 0.1f, .adamw_lr_scale = 0.5f};
  return config;
}

plan::ParameterSlot slot(const char* name, Shape shape, bool decay) {
  plan::ParameterSlot slot;
  slot.name = name;
  slot.shape = shape;
  slot.elements = shape.elements();
  slot.decay = decay;
  return slot;
}

// Matrices longer than a slice and shorter, one of three parts, a convolution, and what AdamW
// takes.
plan::Plan make_tensors(const OptimizerConfig& config,
                        const collectives::Topology& topology,
                        int64_t bucket_elements) {
  plan::Plan plan;
  plan.sharding.topology = topology;
  plan.sharding.lanes = kLanes;
  plan.layout.lanes = kLanes;
  auto& slots = plan.layout.slots;
  slots = {slot("wide", {10, 70}, true),
           slot("bias", {100}, false),
           slot("qkv", {40, 12}, true),
           slot("conv", {6, 3, 3, 2}, true),
           slot("undecayed", {5, 4}, false),
           slot("wte", {8, 40}, true)};
  slots[2].row_parts = {20, 10, 10};
  int64_t offset = 0;
  for (plan::ParameterSlot& each : slots) {
    each.offset = offset;
    offset += (each.elements + 15) / 16 * 16;
  }
  plan.layout.elements = plan.layout.statistics_begin =
      collectives::padded_elements(offset, kLanes);
  plan.layout.buckets =
      collectives::make_buckets({0, plan.layout.elements}, kLanes, bucket_elements);
  plan.traffic.muon = plan::make_muon_layout(std::get<MuonConfig>(config.kind),
                                             plan.layout,
                                             plan.sharding,
                                             cpu::make_backend()->ops().newton_schulz_bytes);
  return plan;
}

std::vector<float> values_of(const plan::Plan& plan, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(plan.layout.elements));
  for (const plan::ParameterSlot& each : plan.layout.slots) {
    std::span<float> own(&values[static_cast<size_t>(each.offset)],
                         static_cast<size_t>(each.elements));
    test::fill_uniform(own, -1, 1, seed + static_cast<uint64_t>(each.offset));
  }
  return values;
}

// kSteps steps, every rank with its parts; the parameters of all.
std::vector<float> train(const OptimizerConfig& config,
                         const collectives::Topology& topology,
                         int64_t bucket_elements = 512) {
  const plan::Plan plan = make_tensors(config, topology, bucket_elements);
  std::vector<float> result(static_cast<size_t>(plan.layout.elements));
  std::mutex mutex;
  testing::run_ranks(topology.ranks(), [&](collectives::Communicator& communicator) {
    const auto backend = cpu::make_backend();
    const auto owned = collectives::owned_ranges(
        plan.layout.buckets, topology.part_of(communicator.rank()), topology.ranks());
    std::vector<float> parameters = values_of(plan, 1), moments(2 * parameters.size()),
                       gradients(parameters.size());
    MuonDirections directions(
        plan,
        communicator,
        *backend,
        {gradients.data()},
        backend->allocate(plan.traffic.muon->bytes(), "test", exec::Backend::Place::kHost));
    Optimizer optimizer(config,
                        plan.layout,
                        owned,
                        *backend,
                        {.weights = {reinterpret_cast<std::byte*>(parameters.data())},
                         .gradients = {gradients.data()},
                         .moments = moments.data(),
                         .muon = &directions});
    for (int64_t step = 1; step <= kSteps; ++step) {
      const std::vector<float> all = values_of(plan, 1000 * static_cast<uint64_t>(step));
      std::ranges::fill(gradients, 0.0f);  // of what others own this rank knows nothing
      for (const collectives::Range& range : owned)
        std::copy(
            all.begin() + range.begin, all.begin() + range.end, gradients.begin() + range.begin);
      optimizer.prepare(kLr, kScale, step);
      optimizer.adapt();
      optimizer.update();
    }
    const std::lock_guard lock(mutex);
    for (const collectives::Range& range : owned)
      std::copy(parameters.begin() + range.begin,
                parameters.begin() + range.end,
                result.begin() + range.begin);
  });
  return result;
}

std::vector<double> part(const std::vector<float>& flat, const plan::ParameterSlot& slot) {
  return {flat.begin() + slot.offset, flat.begin() + slot.offset + slot.elements};
}

// The formula of each tensor in double precision.
std::vector<double> expected(const plan::Plan& plan, size_t number) {
  const plan::ParameterSlot& own = plan.layout.slots[number];
  std::vector<double> p = part(values_of(plan, 1), own), m(p.size()), v(p.size());
  const bool matrix = number != 1 && number != 5;
  for (int64_t step = 1; step <= kSteps; ++step) {
    std::vector<double> g = part(values_of(plan, 1000 * static_cast<uint64_t>(step)), own);
    if (!matrix) {
      const test::AdamReference adamw{.lr = 0.5 * kLr,
                                      .beta1 = 0.9f,
                                      .beta2 = 0.95f,
                                      .epsilon = 1e-8f,
                                      .weight_decay = own.decay ? 0.1f : 0,
                                      .grad_scale = kScale,
                                      .decoupled = true};
      for (size_t i = 0; i < p.size(); ++i) adamw.step(step, g[i], p[i], m[i], v[i]);
      continue;
    }
    std::vector<double> towards(g.size());
    for (size_t i = 0; i < g.size(); ++i) {
      m[i] = 0.9f * m[i] + (1 - 0.9f) * kScale * g[i];
      towards[i] = 0.9f * m[i] + (1 - 0.9f) * kScale * g[i];
    }
    const int64_t columns = own.elements / own.shape[0];
    std::vector<int64_t> parts = own.row_parts;
    if (parts.empty()) parts.push_back(own.shape[0]);
    auto begin = towards.begin();
    for (const int64_t rows : parts) {
      const auto ratio = static_cast<double>(rows) / static_cast<double>(columns);
      const exec::NewtonSchulz shape = {
          rows, columns, 5, static_cast<float>(std::sqrt(std::max(1.0, ratio)))};
      const std::vector<double> made =
          test::newton_schulz_reference({begin, begin + shape.elements()}, shape);
      begin = std::copy(made.begin(), made.end(), begin);
    }
    for (size_t i = 0; i < p.size(); ++i)
      p[i] = (1 - kLr * (own.decay ? 0.1f : 0)) * p[i] - kLr * towards[i];
  }
  return p;
}

TEST(Muon, FollowsTheFormula) {
  const plan::Plan plan = make_tensors(muon(), collectives::Topology::flat(1), 512);
  const std::vector<float> trained = train(muon(), collectives::Topology::flat(1));
  for (size_t i = 0; i < plan.layout.slots.size(); ++i) {
    const plan::ParameterSlot& own = plan.layout.slots[i];
    const std::vector<float> mine(trained.begin() + own.offset,
                                  trained.begin() + own.offset + own.elements);
    // Each step rounds p (below 2) a few times, and adds lr times what Newton-Schulz may be off by.
    const double off = test::newton_schulz_tolerance({own.shape[0], own.elements, 5, 2});
    test::expect_close(mine, expected(plan, i), kSteps * (4 * kEps + kLr * off), own.name);
  }
}

TEST(Muon, SameBitsHoweverRanksNodesAndBucketsCutTheMatrices) {
  const std::vector<float> alone = train(muon(), collectives::Topology::flat(1));
  for (const collectives::Topology& topology : {collectives::Topology::flat(2),
                                                collectives::Topology::flat(4),
                                                collectives::Topology{2, 2},
                                                collectives::Topology{4, 1}})
    for (const int64_t bucket_elements : {256, 512, 4096})
      EXPECT_EQ(train(muon(), topology, bucket_elements), alone)
          << topology.nodes << " x " << topology.per_node << " in buckets of " << bucket_elements;
}

std::vector<std::string> changes(std::vector<std::string> more = {}) {
  more.insert(more.end(), {"optimizer.muon.weight_decay=0.01", "schedule.lr=0.02"});
  return more;
}

TEST(MuonTraining, SameBitsOnRanksNodesAndInStages) {
  testing::TemporaryFolder folder;
  const TrainResult alone = testing::train_in(
      folder.path() / "1", {testing::gpt_config(), 1, testing::whole(), changes()});
  for (const auto& [nodes, ranks] : {std::pair(1, 2), std::pair(1, 8), std::pair(2, 4)}) {
    for (const std::string stage : {"0", "1", "2", "3"}) {
      for (const bool shares : {true, false}) {
        if (shares && (stage >= "2" || (stage == "0" && nodes > 1))) continue;
        testing::Training training = {testing::gpt_config(),
                                      ranks,
                                      testing::whole(),
                                      changes({"comm.zero_stage=" + stage}),
                                      nodes};
        training.shares_memory = shares;
        const TrainResult many = testing::train_in(
            folder.path() / fmt::format("{}x{} {} {}", nodes, ranks, stage, shares), training);
        EXPECT_EQ(many.weights_hash, alone.weights_hash)
            << ranks << " ranks on " << nodes << " in stage " << stage;
      }
    }
  }
}

TEST(MuonTraining, ResumesToTheSameBits) {
  testing::TemporaryFolder folder;
  for (const std::string moments : {"FP32", "BF16"}) {
    const auto all = changes({"optimizer.moments=" + moments});
    const TrainResult whole = testing::train_in(folder.path() / (moments + "whole"),
                                                {testing::gpt_config(), 1, testing::whole(), all});
    const auto cut = folder.path() / (moments + "cut");
    testing::train_in(cut, {testing::gpt_config(), 4, testing::until(17), all, 2});
    const TrainResult resumed =
        testing::train_in(cut, {testing::gpt_config(), 2, testing::resumed(), all});
    EXPECT_EQ(resumed.weights_hash, whole.weights_hash) << moments;
  }
}

run::PreparedRun assembled(const std::vector<std::string>& overrides,
                           const collectives::Topology& topology) {
  const auto backend = cpu::make_backend();
  return testing::prepare(config::parse_config(testing::gpt_config(), "test", overrides),
                          topology,
                          run::RunPurpose::kTrain,
                          backend->ops());
}

// Of each element of the flat buffer, whether it is a matrix's.
std::vector<bool> in_matrices(const run::PreparedRun& prepared) {
  const plan::ParameterLayout& layout = prepared.plan.layout;
  const std::vector<size_t> slots =
      plan::muon_slots(std::get<MuonConfig>(prepared.config.optimizer.kind), layout);
  std::vector<bool> in(static_cast<size_t>(layout.elements));
  for (size_t i = 0; i < in.size(); ++i)
    in[i] = std::ranges::binary_search(slots, layout.slot_at(static_cast<int64_t>(i)));
  return in;
}

// Element by element, of the rank that has most.
TEST(MuonTraining, PlansNoSecondMomentOfMatrices) {
  for (const int ranks : {1, 2, 4}) {
    for (const std::string stage : {"0", "1", "2", "3"}) {
      for (const std::string type : {"FP32", "BF16"}) {
        const run::PreparedRun prepared =
            assembled(changes({"comm.zero_stage=" + stage, "optimizer.moments=" + type}),
                      collectives::Topology::flat(ranks));
        const plan::Plan& plan = prepared.plan;
        const std::vector<bool> matrix = in_matrices(prepared);
        const size_t bytes = type == "FP32" ? 4 : 2;
        const int parts = plan.sharding.shards_optimizer() ? ranks : 1;
        size_t most = 0, matrices = 0;
        for (int part = 0; part < parts; ++part) {
          size_t elements = 0;
          for (const collectives::Range& range :
               collectives::owned_ranges(plan.layout.buckets, part, parts)) {
            for (int64_t i = range.begin; i < range.end; ++i) {
              const bool one = matrix[static_cast<size_t>(i)];
              elements += one ? 1 : 2;
              matrices += one ? 1 : 0;
            }
          }
          most = std::max(most, elements * bytes);
        }
        EXPECT_EQ(plan.memory.row_bytes(plan::RowKind::kMoments), most)
            << ranks << " ranks, stage " << stage;
        EXPECT_GT(matrices, static_cast<size_t>(plan.layout.elements) / 2);
      }
    }
  }
}

// As revisions wrote them that kept zeros for the second moment of matrices.
TEST(MuonTraining, GoesOnFromCheckpointsWithSecondMomentsOfAll) {
  testing::TemporaryFolder folder;
  const TrainResult whole = testing::train_in(
      folder.path() / "whole", {testing::gpt_config(), 1, testing::whole(), changes()});
  testing::train_in(folder.path() / "cut",
                    {testing::gpt_config(), 2, testing::until(17), changes()});
  const auto saved = folder.path() / "cut" / "checkpoints" / "step-00000017";
  const checkpoint::CheckpointState state = checkpoint::read_state(saved);
  EXPECT_EQ(checkpoint::verify(saved), std::vector<std::string>());
  int64_t first_elements = 0, second_elements = 0;
  for (const checkpoint::FileRecord& file : state.files) {
    for (const checkpoint::TensorRecord& tensor : file.tensors) {
      if (tensor.name.starts_with("exp_avg.")) first_elements += tensor.elements;
      if (tensor.name.starts_with("exp_avg_sq.")) second_elements += tensor.elements;
    }
  }
  const std::vector<bool> in = in_matrices(assembled(changes(), collectives::Topology::flat(1)));
  const auto matrices = static_cast<int64_t>(std::ranges::count(in, true));
  EXPECT_EQ(first_elements, state.flat_elements);
  EXPECT_EQ(second_elements, state.flat_elements - matrices);

  const auto elements = static_cast<size_t>(state.flat_elements);
  std::vector<float> weights(elements), first(elements), second(elements);
  checkpoint::read_model(saved, state, state.layout, weights.data());
  checkpoint::read_optimizer(saved, state, state.layout, "exp_avg", {{0, first}});
  checkpoint::read_optimizer(saved, state, state.layout, "exp_avg_sq", {{0, second}});
  checkpoint::CheckpointState old = state;
  old.one_moment.clear();
  old.ranks = 1;
  const auto writer =
      checkpoint::CheckpointWriter::begin(folder.path() / "old" / "checkpoints", 17);
  old.files = {writer.write_model(state.layout, weights.data()),
               writer.write_optimizer_shard(
                   0, 1, {{"exp_avg", {{0, first}}}, {"exp_avg_sq", {{0, second}}}})};
  writer.commit(old);
  const TrainResult resumed = testing::train_in(
      folder.path() / "old", {testing::gpt_config(), 2, testing::resumed(), changes()});
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
}

std::string refusal(const std::vector<std::string>& overrides, const std::string& config) {
  try {
    const auto backend = cpu::make_backend();
    testing::prepare(config::parse_config(config, "test", overrides),
                     collectives::Topology::flat(1),
                     run::RunPurpose::kTrain,
                     backend->ops());
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(MuonTraining, IsRefusedByName) {
  EXPECT_EQ(refusal(changes(), testing::gpt_config()), "");
  EXPECT_NE(refusal(changes({"comm.zero_stage=0", "comm.power_sgd_rank=2"}), testing::gpt_config())
                .find("comm.power_sgd_rank: value is 2; allowed: 0 with optimizer.muon"),
            std::string::npos);
  EXPECT_NE(refusal(changes({"optimizer.muon.adamw_match=(("}), testing::gpt_config())
                .find("optimizer.muon.adamw_match: value is"),
            std::string::npos);
  EXPECT_NE(refusal(changes({"optimizer.muon.adamw_match=."}), testing::gpt_config())
                .find("optimizer.muon: the model has no hidden matrix"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::train
