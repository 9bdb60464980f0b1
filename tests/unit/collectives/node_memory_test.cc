// Catches: a wait that returns before what it waits for was written, or never; memory that is
// another rank's, is not zeroed, is not all there or lies on small pages; a rank that waits for one
// that has ended; ranks that cannot share memory and do not all know it.
#include "collectives/shm/node_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "collectives/agree/agreement.h"
#include "tests/reference/text_checks.h"
#include "tests/reference/thread_communicator.h"

namespace lockstep::collectives {
namespace {

using Event = NodeMemory::Event;

TEST(NodeMemory, EveryRankSeesWhatTheOthersHaveWritten) {
  for (const Topology& topology : {Topology{1, 2}, Topology{1, 8}, Topology{2, 4}}) {
    testing::run_ranks(topology.ranks(), [&](Communicator& communicator) {
      constexpr size_t kInts = 1000;
      const auto node = NodeMemory::join(communicator, topology);
      ASSERT_NE(node, nullptr);
      EXPECT_EQ(node->count(), topology.per_node);
      EXPECT_EQ(node->index(), communicator.rank() % topology.per_node);
      node->allocate(kInts * sizeof(int), sizeof(int));
      EXPECT_EQ(node->allocated_bytes(), (kInts + 1) * sizeof(int));
      int* const mine = reinterpret_cast<int*>(node->own());
      EXPECT_EQ(std::count(mine, mine + kInts, 0), static_cast<int64_t>(kInts));
      for (int round = 1; round <= 200; ++round) {
        // Reading is over when all have got to the second event of a round.
        std::fill_n(mine, kInts, round * 100 + communicator.rank());
        EXPECT_EQ(node->signal(Event::kGradients), static_cast<uint32_t>(round));
        node->wait(Event::kGradients, static_cast<uint32_t>(round));
        const int first = communicator.rank() - node->index();
        for (int i = 0; i < node->count(); ++i) {
          const int* other = reinterpret_cast<const int*>(node->piece(i));
          ASSERT_EQ(std::count(other, other + kInts, round * 100 + first + i),
                    static_cast<int64_t>(kInts));
        }
        if (node->index() == round % node->count()) *reinterpret_cast<int*>(node->common()) = round;
        node->wait(Event::kParameters, node->signal(Event::kParameters));
        ASSERT_EQ(*reinterpret_cast<const int*>(node->common()), round);
        // Before the next round writes it again.
        node->wait(Event::kParameters, node->signal(Event::kParameters));
      }
      run_on_all(communicator, [] {});
    });
  }
}

// Nothing but the messages holds a rank back, so that a fast one is soon at the next.
TEST(NodeMemory, MessagesArriveWholeHoweverLateTheyAreRead) {
  testing::run_ranks(3, [](Communicator& communicator) {
    constexpr size_t kInts = 50;  // of a message
    const auto node = NodeMemory::join(communicator, Topology::flat(3));
    node->allocate_messages(kInts * sizeof(int));
    std::vector<int> all(3 * kInts);
    const auto message = [&](int rank) { return all.begin() + rank * static_cast<int>(kInts); };
    for (int round = 0; round < 500; ++round) {
      std::fill_n(message(communicator.rank()), kInts, 3 * round + communicator.rank());
      node->all_gather_messages(reinterpret_cast<std::byte*>(all.data()));
      for (int rank = 0; rank < 3; ++rank)
        ASSERT_EQ(std::count(message(rank), message(rank) + kInts, 3 * round + rank), kInts);
      if (round % 100 == 33 * communicator.rank()) ::usleep(2000);
    }
    run_on_all(communicator, [] {});
  });
}

// Sleeps in between: whoever waits has long stopped polling.
TEST(NodeMemory, WakesWhoSleeps) {
  testing::run_ranks(2, [](Communicator& communicator) {
    const auto node = NodeMemory::join(communicator, Topology::flat(2));
    for (uint32_t round = 1; round <= 3; ++round) {
      if (communicator.rank() == static_cast<int>(round % 2)) ::usleep(30000);
      node->signal(Event::kGradients);
      node->wait(Event::kGradients, round);
    }
    run_on_all(communicator, [] {});
  });
}

TEST(NodeMemory, NothingToShareWithOneRankANode) {
  testing::run_ranks(2, [](Communicator& communicator) {
    EXPECT_EQ(NodeMemory::join(communicator, Topology{2, 1}), nullptr);
  });
}

constexpr size_t kHugePage = size_t{2} << 20;

TEST(SharedMapping, IsThereAndZeroFromWhereHugePagesBegin) {
  for (const size_t bytes : {size_t{1}, kHugePage, 3 * kHugePage + 12345}) {
    const SharedMapping memory(bytes, "a test");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % kHugePage, 0u);
    // Before anything is read, which would bring pages that are missing.
    struct stat status = {};
    ASSERT_EQ(::fstat(static_cast<int>(memory.source().descriptor), &status), 0);
    EXPECT_EQ(static_cast<size_t>(status.st_size), bytes);
    EXPECT_GE(static_cast<size_t>(status.st_blocks) * 512, bytes) << "not all of it is there";
    const auto zeros = std::count(memory.data(), memory.data() + bytes, std::byte{0});
    EXPECT_EQ(static_cast<size_t>(zeros), bytes);
  }
}

// Bytes on huge pages of the mapping that begins at this address, as the kernel counts them.
size_t huge_page_bytes(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const std::string begin = fmt::format("{:x}-", reinterpret_cast<uintptr_t>(address));
  const std::string field = "ShmemPmdMapped:";
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    found = found || line.starts_with(begin);
    if (found && line.starts_with(field)) return std::stoul(line.substr(field.size())) * 1024;
  }
  return 0;
}

// Whether this kernel makes huge pages of shared memory where it is asked to.
bool kernel_has_huge_pages() {
  const int file = ::memfd_create("probe", MFD_CLOEXEC);
  constexpr size_t kRoom = 2 * kHugePage;
  void* const room = ::mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const size_t begin = kHugePage - reinterpret_cast<uintptr_t>(room) % kHugePage;
  void* const page = static_cast<std::byte*>(room) + begin % kHugePage;
  bool has = ::ftruncate(file, kHugePage) == 0;
  has = has &&
        ::mmap(page, kHugePage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == page;
  if (has) *static_cast<volatile char*>(page) = 0;
  has = has && ::madvise(page, kHugePage, 25 /* MADV_COLLAPSE */) == 0;
  ::munmap(room, kRoom);
  ::close(file);
  return has;
}

TEST(SharedMapping, LiesOnHugePages) {
  if (!kernel_has_huge_pages()) GTEST_SKIP() << "the kernel gives shared memory no huge pages";
  const SharedMapping memory(3 * kHugePage + 12345, "a test");
  EXPECT_EQ(huge_page_bytes(memory.data()), 3 * kHugePage);
}

size_t allocated_bytes_of(const SharedMapping& memory) {
  struct stat status = {};
  EXPECT_EQ(::fstat(static_cast<int>(memory.source().descriptor), &status), 0);
  return static_cast<size_t>(status.st_blocks) * 512;
}

// The pages of a range belong to the process that takes it, so no other may have taken them before.
TEST(SharedMapping, EachProcessTakesThePagesOfItsPart) {
  constexpr size_t kHalf = 3 * kHugePage + 4096, kBytes = 2 * kHalf + 100;
  SharedMapping memory = SharedMapping::without_pages(kBytes, "a test");
  EXPECT_EQ(allocated_bytes_of(memory), 0u);
  const SharedMapping::Source source = memory.source();
  const pid_t child = ::fork();
  if (child == 0) {
    SharedMapping mapped(SharedMapping::Source{
        // As of another process: the parent, which has this file, too.
        ::getppid(),
        source.descriptor,
        source.device,
        source.inode,
        source.address,
        source.bytes});
    mapped.take_pages(kHalf, 2 * kHalf, "a test");
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const size_t by_child = allocated_bytes_of(memory);
  EXPECT_GE(by_child, kHalf);
  EXPECT_LE(by_child, kHalf + kHugePage);
  memory.take_pages(0, kHalf, "a test");
  EXPECT_GE(allocated_bytes_of(memory), 2 * kHalf);
  memory.take_pages(0, kBytes, "a test");
  EXPECT_GE(allocated_bytes_of(memory), kBytes);
  EXPECT_EQ(std::count(memory.data(), memory.data() + kBytes, std::byte{0}),
            static_cast<int64_t>(kBytes));
  if (kernel_has_huge_pages()) {
    EXPECT_EQ(huge_page_bytes(memory.data()), 6 * kHugePage);
  }
}

TEST(NodeMemory, CommonMemoryIsAllThereWhoeverWritesIt) {
  testing::run_ranks(4, [&](Communicator& communicator) {
    constexpr int64_t kPart = 100'000, kBytes = 5 * kPart;  // nobody writes the last part
    const auto node = NodeMemory::join(communicator, Topology{1, 4});
    const std::vector<Range> mine = {{node->index() * kPart, (node->index() + 1) * kPart}};
    node->allocate(0, kBytes, mine);
    EXPECT_EQ(std::count(node->common(), node->common() + kBytes, std::byte{0}), kBytes);
    run_on_all(communicator, [] {});
  });
}

TEST(SharedMapping, SaysHowMuchItCouldNotHave) {
  try {
    SharedMapping(size_t{1} << 52, "a test");  // more than there are addresses
    FAIL() << "it is there";
  } catch (const MemoryError& error) {
    EXPECT_CONTAINS(error.what(), "4503599627370496 bytes of shared memory for a");
  }
}

TEST(SharedMapping, IsTheOtherProcessesMemory) {
  constexpr size_t kBytes = 2 * kHugePage + 4096;
  int pipes[2];
  ASSERT_EQ(::pipe(pipes), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const SharedMapping memory(kBytes, "a test");
    memory.data()[7] = memory.data()[kBytes - 1] = std::byte{42};
    const SharedMapping::Source source = memory.source();
    if (::write(pipes[1], &source, sizeof(source)) != sizeof(source)) ::_exit(1);
    ::pause();
  }
  SharedMapping::Source source;
  ASSERT_EQ(::read(pipes[0], &source, sizeof(source)), static_cast<ssize_t>(sizeof(source)));
  {
    const SharedMapping memory(source);
    EXPECT_EQ(memory.data()[7], std::byte{42});
    EXPECT_EQ(memory.data()[kBytes - 1], std::byte{42});
  }
  // A process of another container has the same number, and other files.
  SharedMapping::Source other = source;
  other.inode += 1;
  EXPECT_THROW(SharedMapping{other}, MemoryError);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_THROW(SharedMapping{source}, MemoryError);
}

}  // namespace
}  // namespace lockstep::collectives
