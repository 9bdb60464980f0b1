// Paths in a recorded config. Catches one that holds in the folder of the start only, and a run
// that does not resume because its paths are now written in another way.

#include "runtime/config/paths.h"

#include <filesystem>
#include <fstream>

#include "runtime/config/differences.h"
#include "tests/reference/temporary_folder.h"
#include "tests/reference/text_checks.h"
#include "tests/unit/config/fixtures.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

// The current folder is `folder` while this object lives.
struct Inside {
  explicit Inside(const fs::path& folder) : before(fs::current_path()) { fs::current_path(folder); }
  ~Inside() { fs::current_path(before); }
  fs::path before;
};

struct PathsTest : ::testing::Test {
  TemporaryFolder temporary;
  fs::path folder = fs::canonical(temporary.path());
  Inside inside{folder};
};

TEST_F(PathsTest, AreAbsoluteWithoutDots) {
  EXPECT_EQ(absolute_path(""), "");
  EXPECT_EQ(absolute_path("."), folder.string());
  EXPECT_EQ(absolute_path("./a/../b/"), (folder / "b").string());
  EXPECT_EQ(absolute_path("/x/../y"), "/y");
}

TEST_F(PathsTest, KeepLinksButNotWhatDotsMeanBehindThem) {
  fs::create_directories(folder / "far/data");
  fs::create_directory(folder / "near");
  fs::create_directory_symlink(folder / "far/data", folder / "near/link");
  EXPECT_EQ(absolute_path("near/link"), (folder / "near/link").string());
  EXPECT_EQ(absolute_path("near/link/.."), (folder / "far").string());
}

TEST_F(PathsTest, AreTheSameFromHereByTheirEndOrByALink) {
  EXPECT_TRUE(same_path("a/b", "./a/c/../b"));
  EXPECT_TRUE(same_path("a/b", (folder / "a/b").string()));
  EXPECT_TRUE(same_path("/elsewhere/a/b", "a/b"));  // recorded in another folder, or moved since
  EXPECT_FALSE(same_path("/elsewhere/xa/b", "a/b"));
  EXPECT_FALSE(same_path("/elsewhere/a/b", "/other/a/b"));
  EXPECT_FALSE(same_path("x/a/b", "a/b"));
  EXPECT_FALSE(same_path("", "a"));
  std::ofstream(folder / "file") << "x";
  fs::create_symlink(folder / "file", folder / "link");
  EXPECT_TRUE(same_path("link", (folder / "file").string()));
}

TEST_F(PathsTest, AreRecordedAbsolute) {
  const std::string here = folder.string();
  const std::string text = recorded_text(parse_good(kMlpText,
                                                    {"data.dir=",
                                                     "output.run_dir=runs/x",
                                                     "train.init_from=../w",
                                                     "checkpoint.local.folder=/dev/shm/../x",
                                                     "checkpoint.local.every=1"}));
  EXPECT_CONTAINS(text, "dir: \"" + here + "\"");
  EXPECT_CONTAINS(text, "run_dir: \"" + here + "/runs/x\"");
  EXPECT_CONTAINS(text, "init_from: \"" + folder.parent_path().string() + "/w\"");
  EXPECT_CONTAINS(text, "folder: \"/dev/x\"");
  // The same file, read in another folder, is the same run; recorded again, it is the same text.
  const RunConfig again = parse_good(text);
  const Inside elsewhere("/");
  EXPECT_EQ(recorded_text(again), text);
}

TEST_F(PathsTest, OfTokenizersAreRelativeToTheDataIfTheyAreThere) {
  fs::create_directories(folder / "data/in_data");
  const std::string chats =
      "model { gpt { layers: 1 heads: 1 width: 4 context: 4 } } data { dir: \"data\" conversations "
      "{ train: \"c.jsonl\" } } train { steps: 1 } optimizer { sgd {} }";
  const auto with = [&](const std::string& tokenizer) {
    return parse_good(chats, {"data.conversations.tokenizer=" + tokenizer});
  };
  EXPECT_CONTAINS(recorded_text(with("in_data")), "tokenizer: \"in_data\"");
  const std::string text = recorded_text(with("here"));
  EXPECT_CONTAINS(text, "tokenizer: \"" + (folder / "here").string() + "\"");
  EXPECT_CONTAINS(text, "train: \"c.jsonl\"");
  EXPECT_TRUE(differences(parse_good(text), with("here")).empty());
  EXPECT_EQ(differences(parse_good(text), with("other"))[0].path, "data.conversations.tokenizer");
}

}  // namespace
}  // namespace lockstep::config
