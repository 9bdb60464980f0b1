// Catches: a file read past its limit, an atomic write that leaves half a file, a write that
// somebody redirects by a link, and errors without path or reason.
#include "runtime/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
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

// The message of the IoError that `action` throws.
template <typename Action>
std::string refusal_of(const Action& action) {
  try {
    action();
  } catch (const IoError& error) {
    return error.what();
  }
  return "nothing is refused";
}

TEST_F(FileTest, NothingIsWrittenThroughLinksAndPipes) {
  write_file_atomically(folder_ / "mine", "mine");
  std::filesystem::create_symlink(folder_ / "mine", folder_ / "link");
  std::filesystem::create_symlink("loop", folder_ / "loop");
  std::filesystem::create_symlink("nowhere", folder_ / "dangling");
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  const auto refused = [&](const char* name) {
    return refusal_of([&] { open_to_write(folder_ / name, O_WRONLY | O_CREAT | O_APPEND); });
  };
  for (const char* name : {"link", "loop", "dangling"})
    EXPECT_EQ(refused(name),
              "cannot write '" + (folder_ / name).string() +
                  "': it is a link, and a run does not write through links; remove it");
  EXPECT_NE(refused("pipe").find("it is a pipe, not a regular file"), std::string::npos);
  EXPECT_NE(refused(".").find("Is a directory"), std::string::npos);
  EXPECT_NE(refused("mine/below").find("Not a directory"), std::string::npos);
  EXPECT_NE(refused(std::string(300, 'n').c_str()).find("File name too long"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "nowhere"));
  EXPECT_EQ(read_file(folder_ / "mine", 100), "mine");
}

// A folder on the way may be a link: runs -> /scratch/runs.
TEST_F(FileTest, LinksOfFoldersAreFollowed) {
  std::filesystem::create_directory(folder_ / "scratch");
  std::filesystem::create_directory_symlink("scratch", folder_ / "runs");
  const Descriptor opened(open_to_write(folder_ / "runs/file", O_WRONLY | O_CREAT));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "scratch/file"));
}

TEST_F(FileTest, AnAtomicWriteReplacesLinksAndNotWhatTheyLeadTo) {
  write_file_atomically(folder_ / "mine", "mine");
  std::filesystem::create_symlink("mine", folder_ / "a");
  std::filesystem::create_symlink("mine", folder_ / "a.tmp");  // in the way of the temporary file
  write_file_atomically(folder_ / "a", "new");
  EXPECT_EQ(read_file(folder_ / "mine", 100), "mine");
  EXPECT_EQ(read_file(folder_ / "a", 100), "new");
  EXPECT_FALSE(std::filesystem::is_symlink(folder_ / "a"));
  std::filesystem::create_symlink("/proc/self/fd/1", folder_ / "stdout");
  const auto refused = [&](const char* name) {
    return refusal_of([&] { write_file_atomically(folder_ / name, "new"); });
  };
  EXPECT_NE(refused("stdout").find("it is a link into /proc"), std::string::npos);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_NE(refused("pipe").find("it is a pipe, not a regular file"), std::string::npos);
  EXPECT_THROW(FileWriter(folder_ / "pipe"), IoError);
  EXPECT_TRUE(std::filesystem::is_fifo(folder_ / "pipe")) << "what is no file is not removed";
}

TEST_F(FileTest, WhatCannotBeFoundOutIsThere) {
  std::filesystem::create_symlink("loop", folder_ / "loop");
  EXPECT_TRUE(is_there(folder_ / "loop"));
  EXPECT_FALSE(is_folder(folder_ / "loop"));
  EXPECT_FALSE(is_file(folder_ / "loop"));
  EXPECT_TRUE(is_there(folder_ / std::string(300, 'n')));
  EXPECT_FALSE(is_there(folder_ / "absent"));
  EXPECT_TRUE(is_folder(folder_));
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
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit{10, before.rlim_max};
  FileWriter writer(folder_ / "a");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::string refusal = refusal_of([&] { writer.write("more than 10 bytes"); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_NE(refusal.find("cannot write"), std::string::npos) << refusal;
}

}  // namespace
}  // namespace lockstep
