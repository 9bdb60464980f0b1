// Catches: a flipped bit of weights, moments, gradients, or of what ranks send each other, that
// nobody finds, or that is laid to another rank or tensor; damage that is found where there is
// none; a checkpoint of damaged weights; and a run that does not come to the right bits after it
// has gone back.
#include "runtime/train/guard/state_guard.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <fstream>

#include "collectives/agree/agreement.h"
#include "runtime/checkpoint/format/folder.h"
#include "tests/reference/runs.h"

namespace lockstep::train {
namespace {

using testing::RankUnderTest;
using testing::TemporaryFolder;
using testing::train_in;
using testing::whole;

constexpr uint32_t kStep = 25;  // whose beginning, or end, meets the fault: after 25 steps
constexpr int kBad = 1;         // the rank

void flip(std::byte* memory, int64_t element) {
  reinterpret_cast<uint32_t*>(memory)[element] ^= 1u << 20;
}

enum class Fault { kParameter, kFirstMoment, kSecondMoment, kAverage, kSummedGradient };

struct Case {
  int stage;
  bool shares_memory;
  int ranks;
  Fault fault;
  int nodes = 1;
};

// The tensor that is struck, an element of it that rank kBad owns, and the owned elements before.
struct Place {
  std::string tensor;
  int64_t flat = 0, local = 0;
};
Place place_of(const RankUnderTest& rank) {
  const plan::Plan& plan = rank.prepared.plan;
  int64_t local = 0;
  for (const collectives::Range& bucket : plan.layout.buckets) {
    const collectives::Range owned =
        plan.sharding.shards_optimizer()
            ? collectives::part_of(
                  bucket, plan.sharding.topology.part_of(kBad), plan.sharding.topology.ranks())
            : bucket;
    for (const plan::ParameterSlot& slot : plan.layout.slots) {
      // An element that is in use, in the middle of the model.
      const int64_t at = std::max(owned.begin, slot.offset);
      if (at >= std::min(owned.end, slot.offset + slot.elements)) continue;
      if (slot.name.find("1.weight") != std::string::npos)
        return {slot.name, at, local + at - owned.begin};
    }
    local += owned.size();
  }
  return {};
}

// Where the sum of the gradient of the place lies, between the reduction and the update.
std::byte* summed_gradients(const RankUnderTest& rank, const Place& place, int64_t* element) {
  *element = place.flat;
  if (std::byte* const sums = rank.backend.row(plan::name_of(plan::RowKind::kGradientSums))) {
    *element = place.local;
    return sums;
  }
  if (rank.node != nullptr) return rank.node->own();
  return rank.backend.row(plan::name_of(plan::RowKind::kGradients));
}

void strike(const RankUnderTest& rank, Fault fault) {
  const plan::Plan& plan = rank.prepared.plan;
  const Place place = place_of(rank);
  ASSERT_NE(place.tensor, "");
  const int64_t owned = plan.layout.elements /
                        (plan.sharding.shards_optimizer() ? plan.sharding.topology.ranks() : 1);
  std::byte* const moments = rank.backend.row(plan::name_of(plan::RowKind::kMoments));
  int64_t element = place.flat;
  switch (fault) {
    case Fault::kParameter:
      if (rank.node != nullptr && plan.sharding.shards_optimizer())
        return flip(rank.node->common(), element);
      return flip(rank.backend.row(plan::name_of(plan::RowKind::kParameters)),
                  plan.sharding.shards_parameters() ? place.local : element);
    case Fault::kFirstMoment: return flip(moments, place.local);
    case Fault::kSecondMoment: return flip(moments, owned + place.local);
    case Fault::kAverage: return flip(moments, 2 * owned + place.local);
    case Fault::kSummedGradient: {
      std::byte* const sums = summed_gradients(rank, place, &element);
      return flip(sums, element);
    }
  }
}

std::vector<std::string> changes_for(const Case& c) {
  return {fmt::format("comm.zero_stage={}", c.stage), "guard.every=1", "train.ema_decay=0.9"};
}

testing::Training training(const Case& c, testing::Meddle meddle) {
  return {testing::mlp_config(),
          c.ranks,
          whole(),
          changes_for(c),
          c.nodes,
          c.shares_memory,
          std::move(meddle)};
}

class StateGuardTest : public ::testing::TestWithParam<Case> {};

TEST_P(StateGuardTest, FindsAFlippedBit) {
  const Case c = GetParam();
  TemporaryFolder folder;
  std::string tensor;
  const auto meddle = [&](const RankUnderTest& rank) {
    if (rank.communicator.rank() != kBad) return;
    tensor = place_of(rank).tensor;
    auto struck = std::make_shared<bool>(false);
    auto step = std::make_shared<uint32_t>(0);
    rank.backend.on_lane = [=](const graph::LaneContext& lane) {
      *step = lane.step;
      if (lane.step != kStep || c.fault == Fault::kSummedGradient) return;
      if (!std::exchange(*struck, true)) strike(rank, c.fault);
    };
    rank.backend.on_mark = [=](exec::Backend::Mark mark) {
      if (*step != kStep || mark != exec::Backend::Mark::kReduced) return;
      if (c.fault == Fault::kSummedGradient) strike(rank, c.fault);
    };
  };
  try {
    train_in(folder.path(), training(c, meddle));
    ADD_FAILURE() << "nobody has found it";
  } catch (const NumericFault& fault) {
    const std::string text = fault.what();
    EXPECT_EQ(fault.code(), ExitCode::kNumeric);
    const char* const what[] = {
        "parameter", "moment exp_avg of", "moment exp_avg_sq", "average", "summed gradient"};
    EXPECT_NE(text.find(what[static_cast<int>(c.fault)]), std::string::npos) << text;
    EXPECT_NE(text.find(tensor), std::string::npos) << text;
    EXPECT_NE(text.find("rank 1 on "), std::string::npos) << text;
    EXPECT_EQ(text.find("rank 0 on "), std::string::npos) << text;
    EXPECT_NE(text.find("checkpoint of step 20 is good"), std::string::npos) << text;
  }
  EXPECT_EQ(checkpoint::list_checkpoints(folder.path() / "checkpoints").back().step, 20);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int stage : {0, 1, 2, 3}) {
    for (bool shares_memory : {true, false}) {
      if (stage == 3 && shares_memory) continue;  // there is no such thing
      for (int ranks : {2, 4}) {
        for (Fault fault : {Fault::kParameter,
                            Fault::kFirstMoment,
                            Fault::kSecondMoment,
                            Fault::kAverage,
                            Fault::kSummedGradient})
          all.push_back({stage, shares_memory, ranks, fault});
      }
    }
  }
  return all;
}

std::string name(const ::testing::TestParamInfo<Case>& info) {
  const char* const faults[] = {
      "Parameter", "FirstMoment", "SecondMoment", "Average", "SummedGradient"};
  return fmt::format("Stage{}{}{}Ranks{}",
                     info.param.stage,
                     info.param.shares_memory ? "Shared" : "Sent",
                     info.param.ranks,
                     faults[static_cast<int>(info.param.fault)]);
}

INSTANTIATE_TEST_SUITE_P(Everywhere, StateGuardTest, ::testing::ValuesIn(cases()), name);

// What the run says when it ends; empty where it trains to its end.
std::string fault_of(const testing::Training& run) {
  TemporaryFolder folder;
  try {
    train_in(folder.path(), run);
    return "";
  } catch (const NumericFault& fault) {
    return fault.what();
  }
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' in: " << text;
}

// Follows which step is under way.
std::shared_ptr<uint32_t> follow(const RankUnderTest& rank) {
  auto step = std::make_shared<uint32_t>(0);
  rank.backend.on_lane = [step](const graph::LaneContext& lane) { *step = lane.step; };
  return step;
}

TEST(StateGuard, FindsGradientsThatArriveOtherwiseThanTheyWereSent) {
  for (int stage : {0, 1, 2, 3}) {
    const auto meddle = [](const RankUnderTest& rank) {
      if (rank.communicator.rank() != kBad) return;
      const auto step = follow(rank);
      auto struck = std::make_shared<bool>(false);
      rank.communicator.on_exchanged = [=](int from, std::byte* slot, size_t) {
        if (from == 0 && *step == kStep && !std::exchange(*struck, true)) flip(slot, 3);
      };
    };
    for (int ranks : {2, 4})
      expect_parts(fault_of(training({stage, false, ranks, Fault::kSummedGradient}, meddle)),
                   {"rank 1 on ", ": the gradient of ", " received from rank 0 differs"});
  }
}

TEST(StateGuard, FindsGradientsThatChangeInSharedMemoryBeforeTheyAreRead) {
  for (int stage : {0, 1, 2}) {
    std::barrier all(2);
    const auto meddle = [&](const RankUnderTest& rank) {
      const auto step = follow(rank);
      const collectives::Range last = rank.prepared.plan.layout.buckets.back();
      std::byte* const own = rank.node->own();
      const int64_t at = rank.prepared.plan.layout.bucket_offsets.empty()
                             ? last.begin
                             : rank.prepared.plan.layout.bucket_offsets.back();
      rank.backend.on_mark =
          [=, &all, bad = rank.communicator.rank() == kBad](exec::Backend::Mark mark) {
            if (*step != kStep || mark != exec::Backend::Mark::kBackwardDone) return;
            all.arrive_and_wait();  // all have offered, and nobody has taken the last bucket
            if (bad) flip(own, at);
            all.arrive_and_wait();
          };
    };
    expect_parts(fault_of(training({stage, true, 2, Fault::kSummedGradient}, meddle)),
                 {"rank 0 on ", ": the gradient of ", " received from rank 1 differs"});
  }
}

// In stage 0 it is sums that are gathered.
TEST(StateGuard, FindsGatheredPartsThatArriveOtherwiseThanTheyWereSent) {
  for (int stage : {0, 1, 2, 3}) {
    const auto meddle = [](const RankUnderTest& rank) {
      if (rank.communicator.rank() != kBad) return;
      const auto step = follow(rank);
      auto struck = std::make_shared<bool>(false);
      rank.communicator.on_gathered = [=](int from, std::byte* slot, size_t) {
        if (from == 0 && *step == kStep && !std::exchange(*struck, true)) flip(slot, 3);
      };
    };
    const std::string what = stage == 0 ? "the summed gradient of " : "its copy of the parameter ";
    for (int ranks : {2, 4})
      expect_parts(fault_of(training({stage, false, ranks, Fault::kParameter}, meddle)),
                   {"rank 1 on ", what});
  }
}

// Two nodes of two ranks that share memory.
TEST(StateGuard, FindsWhatArrivesOtherwiseAtANode) {
  for (int stage : {1, 2}) {
    for (bool gathered : {false, true}) {
      const auto meddle = [=](const RankUnderTest& rank) {
        if (rank.communicator.rank() != kBad) return;
        const auto step = follow(rank);
        auto struck = std::make_shared<bool>(false);
        (gathered ? rank.communicator.on_gathered
                  : rank.communicator.on_exchanged) = [=](int, std::byte* slot, size_t) {
          if (*step == kStep && !std::exchange(*struck, true)) flip(slot, 3);
        };
      };
      expect_parts(fault_of(training({stage, true, 4, Fault::kParameter, 2}, meddle)),
                   {"rank 1 on ", gathered ? "its copy of" : "received from rank 3"});
    }
  }
}

TEST(StateGuard, FindsNothingWhereNothingIsWrong) {
  TemporaryFolder folder;
  const TrainResult alone = train_in(folder.path() / "alone", training({0, false, 1, {}}, {}));
  int number = 0;
  for (int stage : {0, 1, 2, 3}) {
    for (const auto& [shares, nodes] :
         {std::pair(false, 1), std::pair(true, 1), std::pair(true, 2)}) {
      if (shares && stage == 3) continue;
      if (stage == 0 && nodes == 2) continue;
      Case c = {stage, shares, 4, {}, nodes};
      const TrainResult many = train_in(folder.path() / std::to_string(number++), training(c, {}));
      EXPECT_EQ(many.weights_hash, alone.weights_hash) << stage << shares << nodes;
    }
  }
}

TEST(StateGuard, FindsNothingWithoutBeingAsked) {
  testing::Training run =
      training({1, false, 2, Fault::kFirstMoment}, [](const RankUnderTest& rank) {
        if (rank.communicator.rank() != kBad) return;
        rank.backend.on_lane = [rank, struck = false](const graph::LaneContext& lane) mutable {
          if (lane.step == kStep && !std::exchange(struck, true)) strike(rank, Fault::kFirstMoment);
        };
      });
  run.overrides.push_back("guard.enabled=false");
  EXPECT_EQ(fault_of(run), "");
}

// Catches: a layer-wise optimizer's passes that are taken for damage, and its moments unguarded.
TEST(StateGuard, LayerWiseOptimizersToo) {
  for (const char* optimizer : {"lamb", "lars"}) {
    for (bool faulty : {false, true}) {
      const auto meddle = [=](const RankUnderTest& rank) {
        if (!faulty || rank.communicator.rank() != kBad) return;
        rank.backend.on_lane = [rank, struck = false](const graph::LaneContext& lane) mutable {
          if (lane.step == kStep && !std::exchange(struck, true)) strike(rank, Fault::kFirstMoment);
        };
      };
      testing::Training run = training({1, true, 2, Fault::kFirstMoment}, meddle);
      const size_t at = run.config.find("adamw { weight_decay: 0.1 }");
      run.config.replace(at, 27, std::string(optimizer) + " { weight_decay: 0.1 }");
      const std::string text = fault_of(run);
      if (faulty) {
        expect_parts(text, {"rank 1 on ", "moment "});
      } else {
        EXPECT_EQ(text, "") << optimizer;
      }
    }
  }
}

TEST(StateGuard, RollsBackToTheRightBits) {
  for (const auto& [stage, shares] :
       {std::pair(0, false), std::pair(1, true), std::pair(3, false)}) {
    TemporaryFolder folder;
    const Case c = {stage, shares, 2, Fault::kParameter};
    const TrainResult expected = train_in(folder.path() / "whole", training(c, {}));
    testing::Training run = training(c, [](const RankUnderTest& rank) {
      if (rank.communicator.rank() != kBad) return;
      rank.backend.on_lane = [rank, struck = false](const graph::LaneContext& lane) mutable {
        if (lane.step == kStep && !std::exchange(struck, true)) strike(rank, Fault::kParameter);
      };
    });
    run.overrides.push_back("guard.on_damage=ROLL_BACK");
    const TrainResult again = train_in(folder.path() / "again", run);
    EXPECT_EQ(again.weights_hash, expected.weights_hash);
    EXPECT_EQ(again.step, expected.step);
    std::ifstream metrics(folder.path() / "again/metrics.jsonl");
    int64_t lines = 0;
    for (std::string line; std::getline(metrics, line); ++lines)
      EXPECT_TRUE(line.starts_with(fmt::format("{{\"step\": {},", lines + 1))) << line;
    EXPECT_EQ(lines, expected.step);
  }
}

TEST(StateGuard, RollsBackOnceACheckpoint) {
  testing::Training run = training({1, false, 2, Fault::kParameter}, [](const RankUnderTest& rank) {
    if (rank.communicator.rank() != kBad) return;
    rank.backend.on_lane = [rank](const graph::LaneContext& lane) {
      if (lane.step == kStep && lane.lane % 4 == 0) strike(rank, Fault::kParameter);
    };
  });
  run.overrides.push_back("guard.on_damage=ROLL_BACK");
  expect_parts(fault_of(run), {"rank 1 on ", "parameter"});
}

}  // namespace
}  // namespace lockstep::train
