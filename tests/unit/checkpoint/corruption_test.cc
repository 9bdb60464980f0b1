// No damage to a checkpoint goes unnoticed.

#include <fcntl.h>

#include "tests/reference/sanitizers.h"
#include "tests/reference/text_checks.h"
#include "tests/unit/checkpoint/checkpoint_fixture.h"

namespace lockstep::checkpoint {
namespace {

class Corruption : public ::testing::Test {
 protected:
  Corruption() : run_({{"w", {3, 2}}, {"b", {3}}}, 1), saved_(run_.save(folder_.path(), 3, 2)) {}

  std::vector<fs::path> files() const {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(saved_)) paths.push_back(entry.path());
    EXPECT_EQ(paths.size(), 4u);
    return paths;
  }

  // verify() must speak of the file, and loading must fail.
  void expect_detected(const fs::path& file, const std::string& what, bool load = true) {
    const std::vector<std::string> problems = verify(saved_);
    ASSERT_FALSE(problems.empty()) << what;
    ASSERT_NE(problems[0].find(file.filename().string()), std::string::npos) << what << problems[0];
    ASSERT_EQ(problems[0].find('\n'), std::string::npos) << what << problems[0];
    if (!load) return;
    ASSERT_NE(error_of([&] { run_.load(saved_, 2); }), "") << what;
  }

  TemporaryFolder folder_;
  SampleRun run_;
  fs::path saved_;
};

// With sanitizers a fifth of the bits has to do; each place within a byte has its turn.
size_t bit_step() { return test::sanitized() ? 5 : 1; }

TEST_F(Corruption, EverySingleFlippedBit) {
  for (const fs::path& path : files()) {
    const std::string original = bytes_of(path);
    const int fd = ::open(path.c_str(), O_WRONLY);
    ASSERT_GE(fd, 0);
    for (size_t bit = 0; bit < original.size() * 8; bit += bit_step()) {
      const off_t at = static_cast<off_t>(bit / 8);
      const char flipped = static_cast<char>(original[bit / 8] ^ (1 << bit % 8));
      ASSERT_EQ(::pwrite(fd, &flipped, 1, at), 1);
      // Loading, which shares verify's checks, is tried with one bit of each byte: the test stays
      // short under sanitizers.
      const bool load = bit % 8 == bit / 8 % 8;
      expect_detected(path, path.string() + " bit " + std::to_string(bit), load);
      ASSERT_EQ(::pwrite(fd, &original[bit / 8], 1, at), 1);
      if (HasFatalFailure()) break;
    }
    ::close(fd);
  }
  EXPECT_EQ(verify(saved_), std::vector<std::string>()) << "all bits are back";
}

TEST_F(Corruption, EveryTruncationAndExtension) {
  for (const fs::path& path : files()) {
    const std::string original = bytes_of(path);
    for (size_t size = original.size(); size-- > 0;) {
      fs::resize_file(path, size);
      expect_detected(path, path.string() + " cut to " + std::to_string(size));
      if (HasFatalFailure()) return;
    }
    set_bytes(path, original + '\0');
    expect_detected(path, path.string() + " extended");
    set_bytes(path, original);
  }
}

TEST_F(Corruption, MissingFile) {
  for (const fs::path& path : files()) {
    const std::string original = bytes_of(path);
    fs::remove(path);
    expect_detected(path, path.string() + " removed");
    set_bytes(path, original);
  }
}

TEST_F(Corruption, TheProblemNamesTensorAndBytes) {
  const fs::path path = saved_ / kModelFile;
  std::string bytes = bytes_of(path);
  bytes.back() ^= 1;  // 'w' is the last by name
  set_bytes(path, bytes);
  const std::vector<std::string> problems = verify(saved_);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_CONTAINS(problems[0], "tensor 'w'");
  EXPECT_CONTAINS(problems[0], fmt::format("bytes {} to {}", bytes.size() - 24, bytes.size()));
}

// Two files of the right sizes, swapped: sizes and headers are equal in form, contents are not.
TEST_F(Corruption, ShardOfAnotherStep) {
  const fs::path other = SampleRun({{"w", {3, 2}}, {"b", {3}}}, 1).save(folder_.path(), 4, 2);
  fs::copy_file(other / kModelFile, saved_ / kModelFile, fs::copy_options::overwrite_existing);
  expect_detected(saved_ / kModelFile, "model of another step");
}

// A state whose own checksum is right but whose contents cannot be: from a faulty or hostile
// writer.
class BadState : public Corruption {
 protected:
  template <typename Edit>
  std::string verified(Edit&& edit) {
    CheckpointState state = read_state(saved_);
    edit(state);
    const std::string original = bytes_of(saved_ / kStateFile);
    set_bytes(saved_ / kStateFile, to_text(state));
    const std::vector<std::string> problems = verify(saved_);
    set_bytes(saved_ / kStateFile, original);
    return problems.empty() ? "" : problems[0];
  }
};

TEST_F(BadState, ShardsThatDoNotCover) {
  EXPECT_CONTAINS(verified([](CheckpointState& s) { s.flat_elements += 1; }), "in no shard");
}
TEST_F(BadState, ShardsThatOverlap) {
  EXPECT_CONTAINS(verified([](CheckpointState& s) {
                    for (FileRecord& file : s.files) {
                      for (TensorRecord& tensor : file.tensors) {
                        if (tensor.name == "exp_avg.0") tensor.elements += 1;
                      }
                    }
                  }),
                  "stored twice");
}
TEST_F(BadState, RanksWithoutFiles) {
  EXPECT_CONTAINS(verified([](CheckpointState& s) { s.ranks = 3; }), "does not belong to 3");
  EXPECT_CONTAINS(verified([](CheckpointState& s) { s.ranks = int64_t{1} << 60; }), "ranks");
}
TEST_F(BadState, FileOutsideTheFolder) {
  EXPECT_CONTAINS(verified([](CheckpointState& s) { s.files[0].name = "../secret"; }),
                  "not a file of a checkpoint");
}
TEST_F(BadState, LayoutOutsideTheBuffer) {
  EXPECT_CONTAINS(verified([](CheckpointState& s) { s.layout[0].offset = INT64_MAX - 1; }),
                  "does not fit into a flat buffer");
  EXPECT_CONTAINS(verified([](CheckpointState& s) { s.layout[0].offset = -1; }),
                  "does not fit into a flat buffer");
}
TEST_F(BadState, ModelWithoutAParameterOfTheLayout) {
  EXPECT_CONTAINS(verified([](CheckpointState& s) { s.layout.pop_back(); }), "not in the layout");
}
TEST_F(BadState, NewerFormat) {
  EXPECT_CONTAINS(verified([](CheckpointState& s) { s.format = 2; }), "checkpoint format 2");
}

TEST(FileRecordBytes, GarbageIsRefused) {
  EXPECT_NE(error_of([] { parse_file_record("\xff\xff garbage"); }), "");
  EXPECT_NE(error_of([] { parse_file_record(""); }), "");
}

}  // namespace
}  // namespace lockstep::checkpoint
