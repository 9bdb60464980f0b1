// Catches: parameters that Muon should not take, or leaves out; parts of a matrix that overlap or
// lack rows; a rank that has two matrices in a round; memory that is too small for what travels.
#include "runtime/plan/muon_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "runtime/plan/plan.h"

namespace lockstep::plan {
namespace {

ParameterSlot slot(const char* name, int64_t offset, Shape shape) {
  ParameterSlot slot;
  slot.name = name;
  slot.shape = shape;
  slot.offset = offset;
  slot.elements = shape.elements();
  return slot;
}

Plan make_plan_of(int ranks, int zero_stage) {
  Plan plan;
  plan.sharding.topology = collectives::Topology::flat(ranks);
  plan.sharding.lanes = 4;
  plan.sharding.zero_stage = zero_stage;
  int64_t offset = 0;
  const auto add = [&](const char* name, Shape shape) {
    plan.layout.slots.push_back(slot(name, offset, shape));
    offset += (shape.elements() + 15) / 16 * 16;
  };
  add("h.0.qkv.weight", {48, 20});
  plan.layout.slots.back().row_parts = {24, 12, 12};
  add("h.0.qkv.bias", {48});
  add("h.0.conv.weight", {12, 3, 3, 5});
  add("wte.weight", {64, 20});
  add("h.0.mlp.weight", {20, 80});
  add("column.weight", {64, 1});
  add("lm_head.weight", {64, 20});
  add("one.weight", {1, 64});
  plan.layout.elements = collectives::padded_elements(offset, plan.sharding.lanes);
  plan.layout.statistics_begin = plan.layout.elements;
  plan.layout.buckets =
      collectives::make_buckets({0, plan.layout.elements}, plan.sharding.lanes, 512);
  return plan;
}

size_t some_bytes(int64_t rows, int64_t columns) { return static_cast<size_t>(rows * columns) * 8; }

TEST(MuonLayout, TakesHiddenMatricesAlone) {
  const Plan plan = make_plan_of(1, 1);
  EXPECT_EQ(muon_slots(MuonConfig(), plan.layout), (std::vector<size_t>{0, 2, 4}));
  EXPECT_EQ(muon_slots(MuonConfig{.adamw_match = "mlp"}, plan.layout),
            (std::vector<size_t>{0, 2, 3, 6}));
  EXPECT_EQ(muon_slots(MuonConfig{.adamw_match = ""}, plan.layout),
            (std::vector<size_t>{0, 2, 3, 4, 6}));
}

TEST(MuonLayout, PartsOfAMatrixAreTheirOwn) {
  const Plan plan = make_plan_of(1, 1);
  const MuonLayout layout = make_muon_layout(MuonConfig(), plan.layout, plan.sharding, some_bytes);
  ASSERT_EQ(layout.matrices.size(), 5u);
  std::set<int64_t> begins;
  for (const MuonMatrix& matrix : layout.matrices) {
    begins.insert(matrix.range.begin);
    EXPECT_EQ(matrix.range.size(), matrix.rows * matrix.columns);
    if (matrix.slot == 2) {
      EXPECT_EQ(matrix.rows, 12);
      EXPECT_EQ(matrix.columns, 45);
    }
  }
  const int64_t conv = plan.layout.slots[2].offset, mlp = plan.layout.slots[4].offset;
  EXPECT_EQ(begins, (std::set<int64_t>{0, 24 * 20, 36 * 20, conv, mlp}));
}

TEST(MuonLayout, ScalesAreThePapers) {
  const Plan plan = make_plan_of(1, 1);
  for (const auto scale : {MuonConfig::Scale::kOriginal, MuonConfig::Scale::kMatchRmsAdamw}) {
    for (const MuonMatrix& matrix :
         make_muon_layout(MuonConfig{.scale = scale}, plan.layout, plan.sharding, some_bytes)
             .matrices) {
      const auto r = static_cast<double>(matrix.rows), c = static_cast<double>(matrix.columns);
      EXPECT_FLOAT_EQ(matrix.scale,
                      static_cast<float>(scale == MuonConfig::Scale::kOriginal
                                             ? std::sqrt(std::max(1.0, r / c))
                                             : 0.2 * std::sqrt(std::max(r, c))));
    }
  }
}

TEST(MuonLayout, EachRankHasOneMatrixInARound) {
  for (const int ranks : {1, 2, 4}) {
    const Plan plan = make_plan_of(ranks, 1);
    const MuonLayout layout =
        make_muon_layout(MuonConfig(), plan.layout, plan.sharding, some_bytes);
    size_t next = 0;
    for (const MuonRound& round : layout.rounds) {
      EXPECT_EQ(round.first, next);
      std::set<int> owners;
      for (size_t i = 0; i < round.count; ++i)
        owners.insert(layout.matrices[round.first + i].owner);
      EXPECT_EQ(owners.size(), round.count);
      EXPECT_LT(*owners.rbegin(), ranks);
      EXPECT_GE(*owners.begin(), 0);
      next += round.count;
    }
    EXPECT_EQ(next, layout.matrices.size());
  }
}

TEST(MuonLayout, MemoryHoldsWhatTravels) {
  for (const int ranks : {1, 2, 4}) {
    for (const int stage : {0, 1}) {
      const Plan plan = make_plan_of(ranks, stage);
      const MuonLayout layout =
          make_muon_layout(MuonConfig(), plan.layout, plan.sharding, some_bytes);
      const bool sharded = stage == 1 && ranks > 1;
      EXPECT_EQ(layout.sharded, sharded);
      EXPECT_EQ(layout.matrix_bytes > 0, sharded);
      EXPECT_GE(layout.scratch_bytes, some_bytes(20, 80));
      for (const MuonRound& round : layout.rounds) {
        if (ranks > 1) {
          EXPECT_GE(layout.scratch_bytes,
                    static_cast<size_t>(ranks * round.slot) * 4 * (sharded ? 2 : 1));
        }
        for (size_t i = 0; sharded && i < round.count; ++i) {
          const MuonMatrix& matrix = layout.matrices[round.first + i];
          EXPECT_GE(layout.matrix_bytes, static_cast<size_t>(matrix.range.size()) * 4);
          EXPECT_GE(round.slot * ranks, matrix.range.size());
        }
      }
      EXPECT_EQ(layout.sent_bytes() > 0, ranks > 1);
    }
  }
}

}  // namespace
}  // namespace lockstep::plan
