// Catches: a file read past its limit, an atomic write that leaves half a file, and errors without
// path or reason.
#include "runtime/base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>

#include "runtime/base/error.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep {
namespace {

class FileTest : public ::testing::Test {
 protected:
  const testing::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(FileTest, AtomicWriteReplacesAndLeavesNothingElse) {
  write_file_atomically(folder_ / "a", "first");
  write_file_atomically(folder_ / "a", "second");
  EXPECT_EQ(read_file(folder_ / "a", 100), "second");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(FileTest, AFailedAtomicWriteKeepsTheOldFile) {
  write_file_atomically(folder_ / "a", "old");
  std::filesystem::create_directory(folder_ / "a.tmp");  // in the way of the temporary file
  EXPECT_THROW(write_file_atomically(folder_ / "a", "new"), IoError);
  EXPECT_EQ(read_file(folder_ / "a", 100), "old");
}

TEST_F(FileTest, ReadsUpToTheLimitAndNoFurther) {
  write_file_atomically(folder_ / "a", std::string(1000, 'x'));
  EXPECT_EQ(read_file(folder_ / "a", 1000).size(), 1000u);
  try {
    read_file(folder_ / "a", 999);
    ADD_FAILURE();
  } catch (const IoError& error) {
    EXPECT_EQ(error.error_number(), EFBIG);
    EXPECT_NE(std::string(error.what()).find((folder_ / "a").string()), std::string::npos);
  }
}

TEST_F(FileTest, MapsWholeFilesEvenEmptyOnes) {
  write_file_atomically(folder_ / "full", "abc");
  write_file_atomically(folder_ / "empty", "");
  MappedFile full(folder_ / "full");
  const MappedFile moved = std::move(full);
  ASSERT_EQ(moved.bytes().size(), 3u);
  EXPECT_EQ(moved.bytes()[2], std::byte{'c'});
  EXPECT_TRUE(MappedFile(folder_ / "empty").bytes().empty());
  EXPECT_THROW(MappedFile{folder_}, IoError);
  EXPECT_THROW(MappedFile{folder_ / "none"}, IoError);
}

// Opening a pipe would wait for its writer, and reading a device might not end.
TEST_F(FileTest, OnlyRegularFilesAreRead) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  const auto refusal = [](const std::filesystem::path& path) -> std::string {
    try {
      read_file(path, 100);
    } catch (const IoError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(folder_ / "pipe"),
            fmt::format("cannot read '{}': it is a pipe, not a regular file",
                        (folder_ / "pipe").string()));
  EXPECT_EQ(refusal("/dev/zero"), "cannot read '/dev/zero': it is a device, not a regular file");
  EXPECT_THROW(MappedFile{folder_ / "pipe"}, IoError);
}

TEST_F(FileTest, OverwritingLeavesTheRest) {
  FileWriter writer(folder_ / "a");
  writer.write("0123456789");
  writer.overwrite("ab", 2, 3);
  writer.write("!");
  writer.finish();
  EXPECT_EQ(read_file(folder_ / "a", 100), "012ab56789!");
}

TEST_F(FileTest, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  FileWriter writer("/dev/full");
  EXPECT_THROW(writer.write("x"), IoError);
}

}  // namespace
}  // namespace lockstep
