// What one host's watchdog tells another's. Catches moments that arrive changed, of ranks that the
// link has not, or not at all; an end in order that looks like a loss, and the other way round;
// bytes of somebody else that are taken for a message.

#include "collectives/watch/host_links.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <vector>

#include "tests/reference/text_checks.h"

namespace lockstep::collectives {
namespace {

struct Pair {
  std::array<Socket, 2> ends;
  Pair() {
    std::array<int, 2> made{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, made.data()), 0);
    ends = {Socket(made[0]), Socket(made[1])};
  }
};

FlightMoment moment_of(int rank) {
  FlightMoment moment{.rank = rank, .process = 4711 + rank, .host = "node7"};
  moment.beats = 12;
  moment.alive = 34;
  moment.step = 56;
  moment.phase = FlightPhase::kSaving;
  moment.waiting = true;
  moment.last = FlightEntry{.step = 56, .collective = 78, .bytes = 9, .bucket = 3};
  moment.device = {7, 3, FlightOp::kExchange};
  moment.device_wait_s = 61;
  moment.device_late = true;
  moment.begun = FlightStart{.number = 78, .history = 1234567890123, .bytes = 9};
  return moment;
}

TEST(HostLink, MomentsAndFindingsArrive) {
  Pair pair;
  HostLink here(std::move(pair.ends[0]), {{.rank = 0}});
  HostLink there(std::move(pair.ends[1]), {{.rank = 4}, {.rank = 6}});
  here.report({moment_of(4), moment_of(5), moment_of(6)});  // of 5 the other end does not ask
  here.move();
  there.move();
  ASSERT_EQ(there.ranks().size(), 2U);
  for (const FlightMoment& moment : there.ranks()) {
    EXPECT_EQ(moment.process, 4711 + moment.rank);
    EXPECT_EQ(moment.host, "node7");
    EXPECT_EQ(moment.beats, 12U);
    EXPECT_EQ(moment.alive, 34U);
    EXPECT_EQ(moment.begun.history, 1234567890123U);
    EXPECT_EQ(text_of(moment), text_of(moment_of(moment.rank)));
    EXPECT_FALSE(moment.left);
    EXPECT_EQ(moment.device_wait_s, 61);
    EXPECT_TRUE(moment.device_late);
  }
  EXPECT_FALSE(there.finding().has_value());
  there.report(FlightFinding{6, "rank 6 stands still"});
  there.move();
  here.move();
  ASSERT_TRUE(here.finding().has_value());
  EXPECT_EQ(here.finding()->rank, 6);
  EXPECT_EQ(here.finding()->text, "rank 6 stands still");
}

TEST(HostLink, AnEndInOrderIsNoLoss) {
  Pair pair;
  HostLink here(std::move(pair.ends[0]), {{.rank = 0}});
  HostLink there(std::move(pair.ends[1]), {{.rank = 4}});
  here.leave();
  here.close(Deadline(0.01));
  there.move();
  EXPECT_EQ(there.why_lost(), "");
  EXPECT_TRUE(there.ranks()[0].left);
}

TEST(HostLink, AProcessThatIsGoneIsALoss) {
  Pair pair;
  HostLink there(std::move(pair.ends[1]), {{.rank = 4}});
  there.move();
  EXPECT_EQ(there.why_lost(), "");
  pair.ends[0].close();
  there.move();
  EXPECT_EQ(there.why_lost(), "its process has ended");
  EXPECT_FALSE(there.ranks()[0].left);
}

TEST(HostLink, OtherBytesAreNoMessages) {
  Pair pair;
  HostLink there(std::move(pair.ends[1]), {{.rank = 4}});
  const std::string bytes = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_EQ(::send(pair.ends[0].descriptor(), bytes.data(), bytes.size(), 0),
            static_cast<ssize_t>(bytes.size()));
  there.move();
  EXPECT_CONTAINS(there.why_lost(), "no valid watchdog messages");
}

}  // namespace
}  // namespace lockstep::collectives
