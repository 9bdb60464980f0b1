// Catches: a full disk under the metrics that ends a run, tears a record, changes the order of
// records or loses some that memory holds.
#include "runtime/metrics/buffered_file.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstring>

#include "tests/unit/metrics/metrics_fixture.h"

namespace lockstep::metrics {
namespace {

// No file of this process grows beyond `bytes`, as on a full disk, while the object lives.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

class BufferedFileTest : public ::testing::Test {
 protected:
  static std::string line(int number) { return fmt::format("line {:05}\n", number); }  // 11 bytes
  static void append(BufferedFile& file, int first, int last) {
    for (int number = first; number <= last; ++number) {
      char* const out = file.reserve();
      std::memcpy(out, line(number).data(), line(number).size());
      file.commit(out + line(number).size());
    }
  }
  static std::string lines(int first, int last) {
    std::string text;
    for (int number = first; number <= last; ++number) text += line(number);
    return text;
  }
  std::string text() const { return text_of(path_); }

  TemporaryFolder folder_;
  fs::path path_ = folder_.path() / "records";
};

TEST_F(BufferedFileTest, WhatADiskDoesNotTakeIsWrittenLater) {
  BufferedFile file(path_);
  {
    const FullDisk full(25);  // within the third line
    append(file, 1, 5);
    file.flush();
    EXPECT_EQ(text(), lines(1, 2)) << "no record is torn";
    EXPECT_EQ(file.missing(), 3u);
    append(file, 6, 7);
    file.flush();
    EXPECT_EQ(text(), lines(1, 2));
  }
  {
    const FullDisk room(50);  // for some of them
    file.flush();
    EXPECT_EQ(text(), lines(1, 4));
  }
  append(file, 8, 9);
  file.finish();
  EXPECT_EQ(text(), lines(1, 9));
  EXPECT_EQ(file.missing(), 0u);
}

TEST_F(BufferedFileTest, BeyondItsMemoryTheOldestAreDroppedAndCounted) {
  BufferedFile file(path_, /*check=*/{}, /*most_kept_bytes=*/55);
  {
    const FullDisk full(0);
    append(file, 1, 8);
    file.flush();
    EXPECT_EQ(file.missing(), 8u);
  }
  file.flush();
  EXPECT_EQ(text(), lines(4, 8));
  EXPECT_EQ(file.missing(), 3u);
}

// And of more than its buffer holds.
TEST_F(BufferedFileTest, TheDestructorTriesOnceMore) {
  {
    BufferedFile file(path_);
    {
      const FullDisk full(0);
      append(file, 1, 20'000);
      file.flush();
      EXPECT_EQ(file.missing(), 20'000u);
    }
    append(file, 20'001, 20'001);
  }
  EXPECT_EQ(text(), lines(1, 20'001));
}

}  // namespace
}  // namespace lockstep::metrics
