// Catches: work that waits for who reads its output; lines out of order, lost without being
// counted, or kept without a bound; a descriptor that is left non-blocking; an end that waits for
// ever.
#include "runtime/base/output_queue.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Kind = OutputQueue::Kind;

constexpr double kPatienceMs = 20'000;  // only a fault takes so long
constexpr double kStallMs = 20;         // if waiting is in vain

class OutputQueueTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::pipe(ends_.data()), 0); }
  void TearDown() override {
    for (const int end : ends_)
      if (end >= 0) ::close(end);
  }
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  void close_reader() { ::close(std::exchange(ends_[0], -1)); }

  // Until the pipe takes no more. Its other descriptor is blocking all the same.
  void fill_pipe() {
    const int other = ::open(fmt::format("/proc/self/fd/{}", writer()).c_str(),
                             O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    ASSERT_GE(other, 0);
    const std::string bytes(4096, '.');
    while (::write(other, bytes.data(), bytes.size()) > 0) {
    }
    ::close(other);
  }
  // What comes until the text that ends it.
  std::string read_until(const std::string& end) {
    std::string text;
    std::array<char, 4096> bytes;
    while (!text.ends_with(end)) {
      const ssize_t count = ::read(reader(), bytes.data(), bytes.size());
      if (count <= 0) break;
      text.append(bytes.data(), static_cast<size_t>(count));
    }
    return text;
  }

  std::array<int, 2> ends_{-1, -1};
};

TEST_F(OutputQueueTest, WritesInOrder) {
  OutputQueue queue({});
  std::string expected;
  for (int i = 0; i < 2000; ++i) {
    const std::string line = fmt::format("line {}\n", i) + std::string(i % 10 == 0 ? 5000 : 0, 'x');
    expected += line;
    queue.add(writer(), line);
  }
  queue.add(writer(), "end\n");
  EXPECT_EQ(read_until("end\n"), expected + "end\n");
  EXPECT_TRUE(queue.flush(kPatienceMs, kPatienceMs));
  EXPECT_EQ(queue.dropped().lines, 0);
  EXPECT_TRUE(queue.idle());
}

TEST_F(OutputQueueTest, DropsTheOldestCountsThemAndSaysSo) {
  fill_pipe();
  OutputQueue queue({.max_bytes = 100'000});
  const std::string tail(90, 'x');
  constexpr int kLines = 100'000;  // 10 MB
  for (int i = 0; i < kLines; ++i)
    queue.add(writer(), fmt::format("{:9}{}\n", i, tail), i % 2 == 0 ? Kind::kLog : Kind::kResult);
  EXPECT_FALSE(queue.flush(kStallMs, kPatienceMs));
  EXPECT_EQ(queue.error(), 0);
  const OutputQueue::Counts dropped = queue.dropped(), waiting = queue.waiting();
  EXPECT_EQ(dropped.lines + waiting.lines, kLines);
  EXPECT_LT(waiting.lines, 1100);
  EXPECT_EQ(dropped.results + waiting.results, kLines / 2);
  EXPECT_EQ(::fcntl(writer(), F_GETFL) & O_NONBLOCK, 0);

  // There is room again: counts stand where lines are missing, and the newest line comes last.
  const std::string text = read_until(fmt::format("{:9}{}\n", kLines - 1, tail));
  EXPECT_TRUE(queue.flush(kPatienceMs, kPatienceMs));
  std::istringstream lines(text.substr(text.find_first_not_of('.')));
  int next = 0, missing = 0;
  for (std::string line; std::getline(lines, line);) {
    int count = 0;
    if (std::sscanf(line.c_str(), "lockstep: %d lines were dropped here", &count) == 1) {
      missing += count;
      next += count;
    } else {
      ASSERT_EQ(std::stoi(line.substr(0, 9)), next++) << line;
    }
  }
  EXPECT_EQ(next, kLines);
  EXPECT_EQ(missing, static_cast<int>(dropped.lines));
}

TEST_F(OutputQueueTest, TheEndWaitsForASlowReader) {
  fill_pipe();
  OutputQueue queue({});
  queue.add(writer(), "last words\n");
  std::thread slow([&] {
    ::poll(nullptr, 0, 50);
    EXPECT_TRUE(read_until("last words\n").ends_with("last words\n"));
  });
  EXPECT_TRUE(queue.flush(kPatienceMs, kPatienceMs));
  slow.join();
}

TEST_F(OutputQueueTest, KeepsWhatFailsUntilItCanBeWritten) {
  std::atomic<int> failures = 0;
  OutputQueue queue({.on_failure = [&](int error) {
    EXPECT_EQ(error, ENOSPC);
    ++failures;
  }});
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  queue.add(full, "one\n");
  EXPECT_FALSE(queue.flush(kPatienceMs, kPatienceMs));
  EXPECT_FALSE(queue.flush(kPatienceMs, kPatienceMs)) << "tried again at once, and not waited for";
  EXPECT_EQ(queue.error(), ENOSPC);
  EXPECT_EQ(queue.waiting().lines, 1);
  ::dup2(writer(), full);
  queue.add(full, "two\n");
  EXPECT_TRUE(queue.flush(kPatienceMs, kPatienceMs));
  EXPECT_EQ(read_until("two\n"), "one\ntwo\n");
  EXPECT_EQ(queue.error(), 0);
  EXPECT_EQ(failures, 1);
  ::close(full);
}

TEST_F(OutputQueueTest, AReaderThatGoesIsAnErrorAndNoSignal) {
  OutputQueue queue({});
  close_reader();
  queue.add(writer(), "for nobody\n", Kind::kResult);
  EXPECT_FALSE(queue.flush(kPatienceMs, kPatienceMs));
  EXPECT_EQ(queue.error(), EPIPE);
  EXPECT_EQ(queue.waiting().results, 1);
}

TEST_F(OutputQueueTest, ANewRedrawReplacesOneThatWaits) {
  fill_pipe();
  OutputQueue queue({});
  queue.add(writer(), "first\n");
  for (int i = 0; i < 1000; ++i) queue.add(writer(), fmt::format("\rredraw {}", i), Kind::kRedraw);
  queue.add(writer(), "\nend\n");
  const std::string text = read_until("end\n");
  EXPECT_TRUE(text.ends_with("\rredraw 999\nend\n")) << text.substr(text.size() - 80);
  EXPECT_LE(std::count(text.begin(), text.end(), '\r'), 2) << "the thread may hold one in its hand";
}

// A line of progress that stands there goes, but only once, and not if its end is printed.
TEST_F(OutputQueueTest, OtherTextTakesThePlaceOfARedraw) {
  OutputQueue queue({});
  const std::string erase(OutputQueue::kEraseLine);
  for (const std::string text : {"a warning\n", "another\n"}) {
    queue.add(writer(), erase + "50%", Kind::kRedraw);
    queue.add(writer(), erase + "51%", Kind::kRedraw);
    queue.add(writer(), text);
    queue.add(writer(), "and more\n");
  }
  queue.add(writer(), erase + "100%", Kind::kRedraw);
  queue.add(writer(), "\nend\n");
  const std::string text = read_until("end\n");
  EXPECT_TRUE(text.find("51%" + erase + "a warning\nand more\n" + erase) != std::string::npos)
      << text;
  EXPECT_TRUE(text.ends_with("100%\nend\n")) << text;
}

TEST_F(OutputQueueTest, OfManyThreadsNothingIsLost) {
  OutputQueue queue({});
  constexpr int kThreads = 4, kLines = 500;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kLines; ++i) queue.add(writer(), fmt::format("{} {:3}\n", t, i));
      EXPECT_TRUE(queue.flush(kPatienceMs, kPatienceMs));
    });
  }
  std::string text;
  std::array<char, 4096> bytes;
  while (text.size() < size_t{kThreads} * kLines * 6) {
    const ssize_t count = ::read(reader(), bytes.data(), bytes.size());
    ASSERT_GT(count, 0);
    text.append(bytes.data(), static_cast<size_t>(count));
  }
  for (std::thread& thread : threads) thread.join();
  std::array<int, kThreads> next{};
  for (size_t at = 0; at < text.size(); at += 6) {
    int& expected = next[static_cast<size_t>(text[at] - '0')];
    EXPECT_EQ(std::stoi(text.substr(at + 2, 3)), expected++);
  }
}

TEST_F(OutputQueueTest, TheThreadTakesNoSignals) {
  OutputQueue queue({});
  queue.add(writer(), "started\n");
  ASSERT_TRUE(queue.flush(kPatienceMs, kPatienceMs));
  sigset_t usr1, before;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, &before);
  ::kill(::getpid(), SIGUSR1);  // would end the process if any thread took it
  const timespec none{};
  EXPECT_EQ(::sigtimedwait(&usr1, nullptr, &none), SIGUSR1);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_F(OutputQueueTest, AForkedProcessWritesItself) {
  OutputQueue queue({});
  queue.add(writer(), "parent\n");
  ASSERT_TRUE(queue.flush(kPatienceMs, kPatienceMs));
  const pid_t child = ::fork();
  if (child == 0) {
    queue.add(writer(), "child\n");
    ::_exit(queue.flush(kPatienceMs, kPatienceMs) ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_until("child\n"), "parent\nchild\n");
}

TEST_F(OutputQueueTest, TheDestructorDoesNotWaitForAReader) {
  fill_pipe();
  OutputQueue queue({});
  queue.add(writer(), "dropped\n");
}

}  // namespace
}  // namespace lockstep
