// Catches: a mapped file that is cut short and ends the process without a word, with a file's name
// that is not its own, or with another exit code; a bus error elsewhere that is taken for one.
#include "runtime/base/mapping_fault.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/passing_error.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep {
namespace {

constexpr size_t kPages = 4, kPage = 4096;

// Sanitizers have a handler of their own, which would come between; gone before anything is mapped.
[[maybe_unused]] const auto sanitizers_handler = ::signal(SIGBUS, SIG_DFL);

class MappingFaultTest : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& name) const {
    return temporary_.path() / temporary_.write(name, std::string(kPages * kPage, 'x'));
  }
  // The byte's value, read for certain.
  static int at(const MappedFile& file, size_t offset) {
    return static_cast<int>(*const_cast<const volatile std::byte*>(file.bytes().data() + offset));
  }
  // An address that nothing stands behind, which the process does not watch.
  static void touch_unwatched(const std::filesystem::path& path) {
    const Descriptor opened(::open(path.c_str(), O_RDONLY));
    void* const base = ::mmap(nullptr, kPages * kPage, PROT_READ, MAP_PRIVATE, opened.fd, 0);
    std::filesystem::resize_file(path, 0);
    [[maybe_unused]] const int read = *static_cast<const volatile char*>(base);
  }

  const testing::TemporaryFolder temporary_;
};

TEST_F(MappingFaultTest, NamesTheFileThatWasCutShort) {
  EXPECT_EXIT(
      {
        const MappedFile other(file("other"), ExitCode::kCheckpoint);
        const MappedFile cut(file("cut"), ExitCode::kData);
        std::filesystem::resize_file(temporary_.path() / "cut", kPage);
        const int kept = at(cut, kPage - 1) + at(other, 3 * kPage);
        std::fprintf(stderr, "kept %d\n", kept);
        at(cut, 2 * kPage);
      },
      ::testing::ExitedWithCode(3),
      "kept 240\nlockstep: error: .*/cut: the file was cut short .*SIGBUS.*\n$");
}

// Without a file that it can do without the process goes on, with memory that nobody else sees.
TEST_F(MappingFaultTest, AShieldedMapGoesOnWithoutItsFile) {
  EXPECT_EXIT(
      {
        const auto path = file("shielded");
        const Descriptor opened(::open(path.c_str(), O_RDWR));
        auto* const bytes = static_cast<volatile char*>(
            ::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, opened.fd, 0));
        shield_mapping(const_cast<const char*>(bytes), kPages * kPage);
        std::filesystem::resize_file(path, kPage);
        bytes[2 * kPage + 5] = 'y';
        std::fprintf(stderr, "%c%d%c\n", bytes[0], bytes[2 * kPage], bytes[2 * kPage + 5]);
        std::_Exit(read_file(path, kPage) == std::string(kPage, 'x') ? 0 : 1);
      },
      ::testing::ExitedWithCode(0),
      "x0y\n$");
}

// Under `launch` a disk that has failed, which the length of the file tells, is told from a file
// that is wrong.
TEST_F(MappingFaultTest, UnderLaunchADiskThatFailedHasACodeOfItsOwn) {
  const auto cut = [&] {
    ::setenv(kUnderLaunchVariable, "1", 1);
    MappedFile mapped(file("cut"), ExitCode::kData);
    std::filesystem::resize_file(temporary_.path() / "cut", 0);
    return mapped;
  };
  EXPECT_EXIT(at(cut(), 0), ::testing::ExitedWithCode(3), "SIGBUS");
  EXPECT_EXIT(
      {
        const MappedFile mapped = cut();
        std::filesystem::rename(file("whole"), temporary_.path() / "cut");
        at(mapped, 2 * kPage);
      },
      ::testing::ExitedWithCode(kMayPassCode),
      "SIGBUS");
}

TEST_F(MappingFaultTest, OnAnyThreadAndOfAMapThatHasMoved) {
  EXPECT_EXIT(
      {
        MappedFile mapped(file("cut"));
        const MappedFile moved = std::move(mapped);
        std::filesystem::resize_file(temporary_.path() / "cut", 0);
        std::thread([&] { at(moved, 0); }).join();
      },
      ::testing::ExitedWithCode(4),
      "/cut: the file was cut short");
}

TEST_F(MappingFaultTest, SeveralThreadsSayItOnce) {
  EXPECT_EXIT(
      {
        const MappedFile cut(file("cut"), ExitCode::kData);
        std::filesystem::resize_file(temporary_.path() / "cut", 0);
        std::vector<std::thread> readers;
        for (size_t page = 0; page < kPages; ++page)
          readers.emplace_back([&cut, page] { at(cut, page * kPage); });
        for (std::thread& reader : readers) reader.join();
      },
      ::testing::ExitedWithCode(3),
      "^[^\n]*cut short[^\n]*\n$");
}

TEST_F(MappingFaultTest, ElsewhereABusErrorKillsAsEver) {
  EXPECT_EXIT(
      {
        const MappedFile watched(file("watched"));
        touch_unwatched(file("unwatched"));
      },
      ::testing::KilledBySignal(SIGBUS),
      "^$");
  EXPECT_EXIT(
      {
        const MappedFile watched(file("watched"));
        ::raise(SIGBUS);
      },
      ::testing::KilledBySignal(SIGBUS),
      "^$");
}

// An address that belonged to a map which is gone may belong to anything.
TEST_F(MappingFaultTest, ForgetsMapsThatAreGone) {
  EXPECT_EXIT(
      {
        const std::byte* base = nullptr;
        {
          const MappedFile gone(file("gone"));
          base = gone.bytes().data();
        }
        const Descriptor opened(::open(file("unwatched").c_str(), O_RDONLY));
        ::mmap(const_cast<std::byte*>(base),
               kPages * kPage,
               PROT_READ,
               MAP_PRIVATE | MAP_FIXED,
               opened.fd,
               0);
        std::filesystem::resize_file(temporary_.path() / "unwatched", 0);
        [[maybe_unused]] const std::byte read = *const_cast<const volatile std::byte*>(base);
      },
      ::testing::KilledBySignal(SIGBUS),
      "^$");
}

}  // namespace
}  // namespace lockstep
