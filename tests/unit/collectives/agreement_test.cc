// Catches: a rank that goes on, or reports something else, when another has failed.
#include "collectives/agreement.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/reference/thread_communicator.h"

namespace lockstep {
namespace {

TEST(Agreement, EveryRankThrowsTheErrorOfTheLowestFailingRank) {
  std::atomic<int> agreed{0};
  testing::run_ranks(4, [&](Communicator& communicator) {
    try {
      run_on_all(communicator, [&] {
        if (communicator.rank() >= 2)
          throw DataError("file of rank {} is torn", communicator.rank());
      });
    } catch (const AgreedError& error) {
      EXPECT_STREQ(error.what(), "rank 2: file of rank 2 is torn");
      EXPECT_EQ(error.code(), ExitCode::kData);
      ++agreed;
    }
  });
  EXPECT_EQ(agreed, 4);
}

TEST(Agreement, AnErrorOfAllRanksNamesNone) {
  testing::run_ranks(2, [&](Communicator& communicator) {
    try {
      run_on_all(communicator, [] { throw ConfigError("train.lanes: value is 3"); });
      ADD_FAILURE();
    } catch (const AgreedError& error) {
      EXPECT_STREQ(error.what(), "train.lanes: value is 3");
    }
  });
}

TEST(Agreement, RootDecidesForAll) {
  std::atomic<int> ran{0}, failed{0};
  testing::run_ranks(3, [&](Communicator& communicator) {
    run_on_root(communicator, [&] { ++ran; });
    try {
      run_on_root(communicator, [] { throw CheckpointError("disk full"); });
    } catch (const AgreedError&) {
      ++failed;
    }
  });
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(failed, 3);
}

TEST(Agreement, TextsOfAnyLengthArrive) {
  testing::run_ranks(3, [&](Communicator& communicator) {
    const std::string mine(static_cast<size_t>(communicator.rank() * 1000),
                           static_cast<char>('a' + communicator.rank()));
    const auto texts = gather_texts(communicator, mine);
    ASSERT_EQ(texts.size(), 3u);
    EXPECT_EQ(texts[0], "");
    EXPECT_EQ(texts[2], std::string(2000, 'c'));
    EXPECT_EQ(broadcast_text(communicator, communicator.rank() == 0 ? "decision" : "other"),
              "decision");
    for (int root = 0; root < 3; ++root)
      EXPECT_EQ(broadcast_text(communicator, mine, root), texts[static_cast<size_t>(root)]);
  });
}

TEST(Agreement, NumbersAreSummed) {
  testing::run_ranks(3, [&](Communicator& communicator) {
    const int64_t mine = (int64_t{1} << 40) * (communicator.rank() - 1) + 5;
    EXPECT_EQ(sum_over_ranks(communicator, mine), 15);
  });
}

}  // namespace
}  // namespace lockstep
