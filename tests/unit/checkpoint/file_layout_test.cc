// Catches: weights of images that other programs would read in the wrong order, and a checkpoint
// that brings them back in another order than it was given.
#include "runtime/checkpoint/format/file_layout.h"

#include <numeric>

#include "runtime/checkpoint/format/match.h"
#include "tests/unit/checkpoint/checkpoint_fixture.h"

namespace lockstep::checkpoint {
namespace {

// Convolutions (2 outputs of 3 channels, 2 x 1 taps; of one axis and of three), a linear layer that
// reads images (2 x 1 pixels of 3 channels) and a vector.
std::vector<NamedSlice> layout() {
  return {{"conv", {2, 2, 1, 3}, 0, {2, 2, 1, 3}},
          {"linear", {2, 6}, 16, {2, 2, 1, 3}},
          {"bias", {2}, 32, {}},
          {"pointwise", {2, 1, 1, 3}, 40, {2, 1, 1, 3}},
          {"line", {1, 1, 2, 3}, 48, {1, 2, 3}},
          {"volume", {1, 2, 1, 6}, 56, {1, 2, 1, 2, 3}}};
}

TEST(FileForm, ChannelsComeFirst) {
  const std::vector<NamedSlice> slices = layout();
  EXPECT_EQ(file_extents(slices[0]), (std::vector<int64_t>{2, 3, 2, 1}));
  EXPECT_EQ(file_extents(slices[1]), (std::vector<int64_t>{2, 6}));
  EXPECT_EQ(file_extents(slices[3]), (std::vector<int64_t>{2, 3, 1, 1}));
  EXPECT_TRUE(is_reordered(slices[0]) && is_reordered(slices[1]));
  EXPECT_FALSE(is_reordered(slices[2]) || is_reordered(slices[3]));
  std::vector<float> memory(12), file(12), back(12);
  std::iota(memory.begin(), memory.end(), 0.0f);
  to_file_order(slices[0], memory.data(), file.data());
  EXPECT_EQ(file, (std::vector<float>{0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11}));
  from_file_order(slices[0], file.data(), back.data());
  EXPECT_EQ(back, memory);
}

TEST(FileForm, OfOneAxisAndOfThree) {
  const std::vector<NamedSlice> slices = layout();
  EXPECT_EQ(file_extents(slices[4]), (std::vector<int64_t>{1, 3, 2}));
  EXPECT_EQ(file_extents(slices[5]), (std::vector<int64_t>{1, 3, 2, 2, 1}));
  EXPECT_TRUE(is_reordered(slices[4]) && is_reordered(slices[5]));
  std::vector<float> memory(12), file(12), back(12);
  std::iota(memory.begin(), memory.end(), 0.0f);
  to_file_order(slices[4], memory.data(), file.data());
  EXPECT_EQ(std::vector<float>(file.begin(), file.begin() + 6),
            (std::vector<float>{0, 3, 1, 4, 2, 5}));
  // Of channel c, depth d and row h it holds 6 h + 3 d + c.
  to_file_order(slices[5], memory.data(), file.data());
  EXPECT_EQ(file, (std::vector<float>{0, 6, 3, 9, 1, 7, 4, 10, 2, 8, 5, 11}));
  from_file_order(slices[5], file.data(), back.data());
  EXPECT_EQ(back, memory);
}

TEST(FileForm, ACheckpointHoldsThemSoAndBringsThemBack) {
  TemporaryFolder folder;
  CheckpointState state;
  state.layout = layout();
  state.flat_elements = 68;
  std::vector<float> flat(68, 0.0f), back(68, 0.0f);
  for (const NamedSlice& slice : state.layout) {
    const auto begin = flat.begin() + slice.offset;
    std::iota(begin, begin + slice.shape.elements(), static_cast<float>(slice.offset));
  }
  const CheckpointWriter writer = CheckpointWriter::begin(folder.path(), 0);
  state.files.push_back(writer.write_model(state.layout, flat.data()));
  const fs::path checkpoint = writer.commit(state);
  const SafetensorsFile file(checkpoint / kModelFile);
  EXPECT_EQ(file.find("conv")->shape, (std::vector<int64_t>{2, 3, 2, 1}));
  std::vector<float> conv(12);
  file.read_weights(*file.find("conv"), conv.data());
  EXPECT_EQ(conv[1], 3);

  const CheckpointState read = read_state(checkpoint);
  EXPECT_EQ(read.layout, state.layout);
  read_model(checkpoint, read, layout(), back.data());
  EXPECT_EQ(back, flat);
  std::fill(back.begin(), back.end(), 0.0f);
  read_model_file(checkpoint / kModelFile, layout(), back.data());
  EXPECT_EQ(back, flat);
}

TEST(FileForm, MismatchesAreListedOneByOne) {
  const ShapeByName expected = shapes_in_files(layout());
  ShapeByName found = expected;
  EXPECT_TRUE(list_mismatches(found, expected).empty());
  found["conv"] = {2, 2, 1, 3};
  found.erase("bias");
  found["extra"] = {1};
  const std::vector<std::string> lines = list_mismatches(found, expected);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[0].find("'bias' of shape (2) is missing"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("(2, 2, 1, 3), but the model needs (2, 3, 2, 1)"), std::string::npos);
  EXPECT_NE(lines[2].find("no tensor 'extra'"), std::string::npos) << lines[2];
  EXPECT_TRUE(is_bookkeeping("layer1.0.bn1.num_batches_tracked"));
  EXPECT_FALSE(is_bookkeeping("layer1.0.bn1.running_mean"));
}

}  // namespace
}  // namespace lockstep::checkpoint
