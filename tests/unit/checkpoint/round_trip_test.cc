// What is saved comes back, on any number of ranks, and what does not fit is refused with names.

#include "runtime/checkpoint/format/safetensors.h"
#include "tests/reference/text_checks.h"
#include "tests/unit/checkpoint/checkpoint_fixture.h"

namespace lockstep::checkpoint {
namespace {

// Catches: any loss in the state file, and fields that are swapped or dropped.
TEST(RoundTrip, EveryFieldOfTheState) {
  const SampleRun run = sample_run();
  const CheckpointState state =
      run.state(40, 2, {{"model.safetensors", 99, 5, {{"a \"quoted\"\n name", 3, ~0ull}}}});
  const CheckpointState back = parse_state(to_text(state), "test");
  EXPECT_EQ(back.step, 40);
  EXPECT_EQ(back.samples, 1280);
  EXPECT_EQ(back.seed, 0xfedcba9876543210u);
  EXPECT_EQ(back.lanes, 8);
  EXPECT_EQ(back.ranks, 2);
  EXPECT_EQ(back.global_batch, 32);
  EXPECT_EQ(back.lockstep_version, "0.1.0");
  EXPECT_EQ(back.weights_hash, 0x0123456789abcdefu);
  EXPECT_EQ(back.config_hash, state.config_hash);
  EXPECT_EQ(back.optimizer, "adamw");
  EXPECT_EQ(back.moments, state.moments);
  EXPECT_EQ(back.flat_elements, run.flat_elements);
  EXPECT_EQ(back.layout, state.layout);
  EXPECT_EQ(back.best_metric, 0.1 + 0.2);  // needs 17 digits
  EXPECT_EQ(back.best_step, 20);
  EXPECT_EQ(back.evals_since_best, 3);
  EXPECT_EQ(back.extra, state.extra);
  EXPECT_EQ(back.files, state.files);
  EXPECT_EQ(to_text(back), to_text(state));
}

TEST(RoundTrip, NoBestMetricYet) {
  CheckpointState state = sample_run().state(1, 1, {});
  state.best_metric.reset();
  EXPECT_FALSE(parse_state(to_text(state), "test").best_metric.has_value());
}

class Resharding : public ::testing::TestWithParam<std::tuple<int, int>> {};

// Catches: a shard that is left out, taken twice or put at another offset.
TEST_P(Resharding, SavedByOneNumberLoadedByAnother) {
  const auto [writers, readers] = GetParam();
  const TemporaryFolder folder;
  const SampleRun run = sample_run();
  const fs::path saved = run.save(folder.path() / "checkpoints", 5, writers);
  EXPECT_EQ(saved.filename(), "step-00000005");
  EXPECT_EQ(verify(saved), std::vector<std::string>());
  run.expect_equal(run.load(saved, readers));
}

INSTANTIATE_TEST_SUITE_P(Ranks,
                         Resharding,
                         ::testing::Combine(::testing::Values(1, 2, 4, 8),
                                            ::testing::Values(1, 2, 4, 8)));

// Moments are cut into pieces within the file; catches wrong cuts, and copies that span two pieces.
TEST(RoundTrip, MomentsLongerThanAPiece) {
  const TemporaryFolder folder;
  const SampleRun run({{"a", {kMomentChunkElements - 5}}, {"b", {kMomentChunkElements + 100}}});
  const fs::path saved = run.save(folder.path(), 1, 2);
  const CheckpointState state = read_state(saved);
  for (const FileRecord& file : state.files) {
    for (const TensorRecord& tensor : file.tensors) {
      if (file.name == kModelFile) continue;
      EXPECT_LE(tensor.elements, kMomentChunkElements);
    }
  }
  run.expect_equal(run.load(saved, 3));
}

// Another order and padding of the flat buffer: values follow their parameter.
TEST(RoundTrip, AnotherLayout) {
  const TemporaryFolder folder;
  const SampleRun run({{"a", {7}}, {"b", {2, 3}}, {"c", {5}}}, 1);
  SampleRun other({{"c", {5}}, {"a", {7}}, {"b", {2, 3}}}, 16);
  const fs::path saved = run.save(folder.path(), 1, 4);
  other = other.load(saved, 2);
  for (const NamedSlice& to : other.layout) {
    for (const NamedSlice& from : run.layout) {
      if (from.name != to.name) continue;
      for (int64_t i = 0; i < to.shape.elements(); ++i) {
        const size_t a = static_cast<size_t>(from.offset + i),
                     b = static_cast<size_t>(to.offset + i);
        EXPECT_EQ(run.weights[a], other.weights[b]);
        EXPECT_EQ(run.exp_avg[a], other.exp_avg[b]);
        EXPECT_EQ(run.exp_avg_sq[a], other.exp_avg_sq[b]);
      }
    }
  }
  EXPECT_EQ(other.exp_avg[5], 0) << "padding";
}

// Of 'b' only the first moment is kept: a state that says so has no gap, and what is read is zero.
TEST(RoundTrip, ParametersOfOneMoment) {
  const TemporaryFolder folder;
  SampleRun run({{"a", {7}}, {"b", {2, 3}}, {"c", {5}}});
  const auto border = [&](size_t slice) { return static_cast<size_t>(run.layout[slice].offset); };
  const std::span<const float> first = run.exp_avg, second = run.exp_avg_sq;
  const CheckpointWriter writer = CheckpointWriter::begin(folder.path(), 1);
  const MomentShard all = {"exp_avg", {{0, first}}};
  const MomentShard some = {
      "exp_avg_sq",
      {{0, second.first(border(1))}, {run.layout[2].offset, second.subspan(border(2))}}};
  CheckpointState state = run.state(1,
                                    1,
                                    {writer.write_model(run.layout, run.weights.data()),
                                     writer.write_optimizer_shard(0, 1, {all, some})});
  EXPECT_CONTAINS(error_of([&] { writer.commit(state); }), "[8, 16) are in no shard");
  state.one_moment = {"c"};
  EXPECT_CONTAINS(error_of([&] { writer.commit(state); }), "[8, 16) are in no shard");
  state.one_moment = {"b"};
  const fs::path saved = writer.commit(state);
  EXPECT_EQ(read_state(saved).one_moment, state.one_moment);
  EXPECT_EQ(verify(saved), std::vector<std::string>());
  std::fill(run.exp_avg_sq.begin() + 8, run.exp_avg_sq.begin() + 16, 0.0f);
  run.expect_equal(run.load(saved, 3));
}

TEST(RoundTrip, OptimizerWithoutMoments) {
  const TemporaryFolder folder;
  const SampleRun run = sample_run();
  const CheckpointWriter writer = CheckpointWriter::begin(folder.path(), 1);
  CheckpointState state = run.state(1, 4, {writer.write_model(run.layout, run.weights.data())});
  state.moments.clear();
  const fs::path saved = writer.commit(state);
  EXPECT_EQ(verify(saved), std::vector<std::string>());
  EXPECT_CONTAINS(error_of([&] { run.load(saved, 1); }), "no optimizer moment 'exp_avg'");
}

TEST(RoundTrip, MismatchesAreNamed) {
  const TemporaryFolder folder;
  const SampleRun run({{"a", {7}}, {"b", {2, 3}}});
  const fs::path saved = run.save(folder.path(), 1, 1);
  const SampleRun reshaped({{"a", {7}}, {"b", {3, 2}}});
  const std::string shape_error = error_of([&] { reshaped.load(saved, 1); });
  EXPECT_CONTAINS(shape_error, "'b'");
  EXPECT_CONTAINS(shape_error, "(2, 3)");
  EXPECT_CONTAINS(shape_error, "(3, 2)");
  const SampleRun renamed({{"a", {7}}, {"c", {2, 3}}});
  const std::string name_error = error_of([&] { renamed.load(saved, 1); });
  EXPECT_CONTAINS(name_error, "missing 'c'");
  EXPECT_CONTAINS(name_error, "no 'b'");
}

TEST(RoundTrip, ModelFromAForeignFile) {
  const TemporaryFolder folder;
  const SampleRun run({{"a", {7}}, {"b", {2, 3}}}, 1);
  const std::vector<float> a = random_values(7, 1), b = random_values(6, 2);
  write_safetensors(folder.path() / "init.safetensors", {{"b", {2, 3}, b}, {"a", {7}, a}}, {});
  std::vector<float> flat(13);
  read_model_file(folder.path() / "init.safetensors", run.layout, flat.data());
  EXPECT_TRUE(std::equal(a.begin(), a.end(), flat.begin()));
  EXPECT_TRUE(std::equal(b.begin(), b.end(), flat.begin() + 7));
}

}  // namespace
}  // namespace lockstep::checkpoint
