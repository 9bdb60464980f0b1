// Catches: bytes that arrive at the wrong place or not at all, for any number of ranks and any
// size; an order of operations that deadlocks; a failure that another rank does not hear of.
#include "collectives/tcp/tcp_communicator.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <latch>
#include <mutex>
#include <numeric>
#include <random>

#include "collectives/agree/agreement.h"
#include "collectives/tcp/socket.h"
#include "runtime/base/error.h"
#include "runtime/base/host.h"
#include "tests/reference/tcp_ranks.h"
#include "tests/reference/text_checks.h"

namespace lockstep::collectives {
namespace {

using testing::run_tcp_ranks;
using testing::tcp_ranks;

// What rank `from` has at `index` for rank `to` in round `round`.
std::byte pattern(int from, int to, size_t index, int round) {
  return static_cast<std::byte>(from * 31 + to * 7 + static_cast<int>(index % 251) * 3 + round);
}

void expect_no_errors(const std::vector<std::string>& errors) {
  EXPECT_EQ(errors, testing::no_errors(errors.size()));
}

// Sizes around nothing, one, odd, a page, and more than the sockets' buffers hold.
const std::vector<size_t> kSizes = {0, 1, 3, 4097, 6'000'001};

void check_exchange(Communicator& communicator, size_t bytes, int round) {
  const int ranks = communicator.size(), me = communicator.rank();
  std::vector<std::byte> send(bytes * static_cast<size_t>(ranks)),
      receive(send.size(), std::byte{99});
  for (int r = 0; r < ranks; ++r) {
    for (size_t i = 0; i < bytes; ++i)
      send[static_cast<size_t>(r) * bytes + i] = pattern(me, r, i, round);
  }
  communicator.wait(
      communicator.start_exchange({send.data(), receive.data(), bytes, communicator.everyone()}));
  size_t wrong = 0;
  for (int r = 0; r < ranks; ++r) {
    for (size_t i = 0; i < bytes; ++i)
      wrong += receive[static_cast<size_t>(r) * bytes + i] !=
               (r == me ? std::byte{99} : pattern(r, me, i, round));
  }
  EXPECT_EQ(wrong, 0U) << bytes << " bytes, rank " << me << " of " << ranks;
}

void check_all_gather(Communicator& communicator, size_t bytes, int round) {
  const int ranks = communicator.size(), me = communicator.rank();
  std::vector<std::byte> buffer(bytes * static_cast<size_t>(ranks), std::byte{99});
  for (size_t i = 0; i < bytes; ++i)
    buffer[static_cast<size_t>(me) * bytes + i] = pattern(me, 0, i, round);
  communicator.all_gather(buffer.data(), bytes);
  size_t wrong = 0;
  for (int r = 0; r < ranks; ++r) {
    for (size_t i = 0; i < bytes; ++i)
      wrong += buffer[static_cast<size_t>(r) * bytes + i] != pattern(r, 0, i, round);
  }
  EXPECT_EQ(wrong, 0U) << bytes << " bytes, rank " << me << " of " << ranks;
}

// Small whole numbers: their float sums are exact.
void check_reduce_scatter(Communicator& communicator, int64_t elements) {
  const int ranks = communicator.size(), me = communicator.rank();
  const auto value = [](int rank, int64_t i) { return static_cast<float>((rank + 1) * (i % 97)); };
  std::vector<float> send(static_cast<size_t>(elements * ranks)), receive(send.size(), -1.0F);
  for (size_t i = 0; i < send.size(); ++i) send[i] = value(me, static_cast<int64_t>(i));
  communicator.wait(communicator.start_reduce_scatter(send.data(), receive.data(), elements));
  int64_t wrong = 0;
  for (int64_t i = 0; i < elements; ++i) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += value(r, me * elements + i);
    wrong += receive[static_cast<size_t>(i)] != sum;
  }
  EXPECT_EQ(wrong, 0) << elements << " elements, rank " << me << " of " << ranks;
}

void check_broadcast(Communicator& communicator, size_t bytes) {
  for (int root = 0; root < communicator.size(); ++root) {
    std::vector<std::byte> buffer(bytes, std::byte{99});
    if (communicator.rank() == root) {
      for (size_t i = 0; i < bytes; ++i) buffer[i] = pattern(root, 0, i, 0);
    }
    communicator.broadcast(buffer.data(), bytes, root);
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; ++i) wrong += buffer[i] != pattern(root, 0, i, 0);
    EXPECT_EQ(wrong, 0U) << bytes << " bytes from " << root;
  }
}

class TcpCommunicatorRanks : public ::testing::TestWithParam<int> {
 protected:
  testing::TemporaryFolder folder_;
  std::vector<TcpOptions> ranks_ = tcp_ranks(GetParam(), folder_.path() / "meeting");
};

TEST_P(TcpCommunicatorRanks, EveryByteArrivesWhereItBelongs) {
  expect_no_errors(run_tcp_ranks(ranks_, [&](Communicator& communicator) {
    EXPECT_EQ(communicator.size(), GetParam());
    for (const size_t bytes : kSizes) {
      const size_t most = bytes / static_cast<size_t>(GetParam());
      check_exchange(communicator, most, 0);
      check_all_gather(communicator, most, 0);
      check_reduce_scatter(communicator, static_cast<int64_t>(most / sizeof(float)));
      check_broadcast(communicator, most);
    }
  }));
}

// As many operations as may be under way, waited for in another order, with ranks that come at
// different times: frames of operations that a rank has not started must wait for it.
TEST_P(TcpCommunicatorRanks, OperationsOverlapInAnyOrder) {
  constexpr size_t kBytes = 100'001;  // of all that are under way more than sockets hold
  expect_no_errors(run_tcp_ranks(ranks_, [&](Communicator& communicator) {
    const int ranks = communicator.size(), me = communicator.rank();
    const size_t whole = kBytes * static_cast<size_t>(ranks);
    for (int round = 0; round < 5; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds((me * 7 + round * 3) % 11));
      std::vector<std::vector<std::byte>> buffers;
      std::vector<int> handles;
      for (int i = 0; i < Communicator::kMaxPending; ++i) {
        buffers.emplace_back(whole, pattern(me, i, 0, round));
        handles.push_back(
            communicator.start_all_gather(buffers.back().data(), kBytes, communicator.everyone()));
      }
      std::vector<int> order(Communicator::kMaxPending);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), std::minstd_rand(static_cast<unsigned>(round)));
      for (const int i : order) {
        communicator.wait(handles[static_cast<size_t>(i)]);
        for (int r = 0; r < ranks; ++r) {
          const std::byte* slot =
              buffers[static_cast<size_t>(i)].data() + static_cast<size_t>(r) * kBytes;
          EXPECT_EQ(slot[0], pattern(r, i, 0, round));
          EXPECT_EQ(slot[kBytes - 1], pattern(r, i, 0, round));
        }
      }
    }
  }));
}

TEST_P(TcpCommunicatorRanks, TextsAreGathered) {
  expect_no_errors(run_tcp_ranks(ranks_, [&](Communicator& communicator) {
    const std::vector<std::string> texts =
        gather_texts(communicator, std::string(static_cast<size_t>(communicator.rank()), 'x'));
    for (size_t r = 0; r < texts.size(); ++r) EXPECT_EQ(texts[r], std::string(r, 'x'));
  }));
}

INSTANTIATE_TEST_SUITE_P(Sizes, TcpCommunicatorRanks, ::testing::Values(1, 2, 3, 4, 5, 8));

class TcpFailures : public ::testing::Test {
 protected:
  testing::TemporaryFolder folder_;
  std::vector<TcpOptions> ranks_ = tcp_ranks(4, folder_.path() / "meeting");
};

TEST_F(TcpFailures, AbortReachesRanksThatWaitForOthers) {
  const auto errors = run_tcp_ranks(ranks_, [&](TcpCommunicator& communicator) {
    communicator.all_gather(std::vector<std::byte>(4).data(), 1);
    if (communicator.rank() == 2) {
      communicator.abort("its disk is full");
      return;
    }
    std::byte byte{};
    communicator.broadcast(&byte, 1, 2);
    communicator.broadcast(&byte, 1, 0);
    communicator.broadcast(&byte, 1, 1);
  });
  for (const int rank : {0, 1, 3})
    EXPECT_EQ(errors[static_cast<size_t>(rank)], "rank 2 on " + host_name() + ": its disk is full");
  EXPECT_EQ(errors[2], "");
}

TEST_F(TcpFailures, OperationsThatDifferAreNamedOnBothSides) {
  const auto errors = run_tcp_ranks(ranks_, [&](Communicator& communicator) {
    std::vector<std::byte> buffer(64);
    communicator.all_gather(buffer.data(), communicator.rank() == 1 ? 8 : 16);
  });
  for (const std::string& error : errors) {
    EXPECT_CONTAINS(error, "the ranks do different things");
    EXPECT_CONTAINS(error, "all-gather of 8 bytes (operation 1)");
    EXPECT_CONTAINS(error, "all-gather of 16 bytes (operation 1)");
  }
}

TEST_F(TcpFailures, RankThatLeavesEarlyIsNamed) {
  const auto errors = run_tcp_ranks(ranks_, [&](Communicator& communicator) {
    if (communicator.rank() == 3) return;
    std::vector<std::byte> buffer(64);
    communicator.all_gather(buffer.data(), 16);
  });
  for (const int rank : {0, 1, 2})
    EXPECT_CONTAINS(errors[static_cast<size_t>(rank)], "lost rank 3 on ");
}

// Counts one down when it goes, by an error too.
struct AtEnd {
  explicit AtEnd(std::latch& ended) : ended(ended) {}
  ~AtEnd() { ended.count_down(); }
  std::latch& ended;
};

TEST_F(TcpFailures, RankThatNeverComesToTheOperationIsNamed) {
  for (TcpOptions& options : ranks_) options.limits.operation_s = 0.3;
  std::latch others_ended(3);
  const auto errors = run_tcp_ranks(ranks_, [&](Communicator& communicator) {
    std::vector<std::byte> buffer(64);
    if (communicator.rank() != 1) {
      const AtEnd ended(others_ended);
      communicator.all_gather(buffer.data(), 16);
    } else {
      others_ended.wait();
      EXPECT_THROW(communicator.all_gather(buffer.data(), 16), CommError);
    }
  });
  for (const int rank : {0, 2, 3}) {
    const std::string& error = errors[static_cast<size_t>(rank)];
    EXPECT_CONTAINS(error, "nothing moved for 0.3 s in all-gather of 16 bytes (operation 1)");
    EXPECT_CONTAINS(error, "no bytes from rank 1 on");
  }
}

// Also behind an older operation that waits for it.
TEST_F(TcpFailures, LateRankIsNamedWhicheverOperationIsWaitedFor) {
  for (TcpOptions& options : ranks_) options.limits.operation_s = 0.3;
  std::latch others_ended(3);
  const auto errors = run_tcp_ranks(ranks_, [&](Communicator& communicator) {
    std::vector<std::byte> first(64), second(64);
    if (communicator.rank() == 1) return others_ended.wait();
    const AtEnd ended(others_ended);
    communicator.start_all_gather(first.data(), 16, communicator.everyone());
    communicator.wait(communicator.start_all_gather(second.data(), 8, communicator.everyone()));
  });
  for (const int rank : {0, 2, 3}) {
    const std::string& error = errors[static_cast<size_t>(rank)];
    EXPECT_CONTAINS(error, "nothing moved for 0.3 s in all-gather of 8 bytes (operation 2)");
    EXPECT_CONTAINS(error, "no bytes from rank 1 on");
    EXPECT_LACKS(error, "no bytes from rank 1 on " + host_name() + ", ");
  }
}

// The kernel must not end it before the operations' limit does, as TCP_USER_TIMEOUT would.
TEST(TcpSocket, ConnectionToARankThatDoesNotReadHasNoLimitOfItsOwn) {
  const Socket listener = listen_on(0);
  const Socket connected = connect_to("localhost", port_of(listener), Deadline(60));
  wait_for(listener, POLLIN, Deadline(60));
  const Socket accepted = accept_from(listener);
  for (const Socket* socket : {&connected, &accepted}) {
    const auto option = [&](int level, int name) {
      int value = -1;
      socklen_t length = sizeof(value);
      EXPECT_EQ(getsockopt(socket->descriptor(), level, name, &value, &length), 0);
      return value;
    };
    EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
    EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);  // but a host that is gone is noticed
  }
}

// Who was told of a failure by the rank that told the user leaves it at that; of a rank that is
// just gone the lowest rank left speaks.
TEST_F(TcpFailures, OneRankIsToTellTheUser) {
  for (const bool aborts : {true, false}) {
    std::vector<int> tellers;
    std::mutex mutex;
    expect_no_errors(run_tcp_ranks(ranks_, [&](TcpCommunicator& communicator) {
      if (communicator.rank() == 0) {
        if (aborts) communicator.abort("its disk is full");
        return;
      }
      std::byte byte{};
      EXPECT_THROW(communicator.broadcast(&byte, 1, 0), CommError);
      const std::lock_guard lock(mutex);
      if (!communicator.another_rank_reports()) tellers.push_back(communicator.rank());
    }));
    EXPECT_EQ(tellers, aborts ? std::vector<int>{} : std::vector<int>{1});
  }
}

TEST_F(TcpFailures, AfterAFailureEveryOperationRepeatsIt) {
  const auto errors = run_tcp_ranks(ranks_, [&](TcpCommunicator& communicator) {
    std::byte byte{};
    if (communicator.rank() == 0) communicator.abort("gone");
    for (int i = 0; i < 3; ++i) {
      try {
        communicator.broadcast(&byte, 1, 0);
        FAIL() << "rank " << communicator.rank();
      } catch (const CommError& error) {
        EXPECT_CONTAINS(error.what(), "gone");
      }
    }
  });
  expect_no_errors(errors);
}

}  // namespace
}  // namespace lockstep::collectives
