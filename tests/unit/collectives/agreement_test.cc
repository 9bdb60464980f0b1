// Catches: a rank that goes on, or reports something else, when another has failed.
#include "collectives/agree/agreement.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/reference/thread_communicator.h"

namespace lockstep::collectives {
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

// What require_same_facts() says where rank r gives facts[r]; "" where it says nothing. The same on
// all ranks.
std::string difference_between(const std::vector<std::vector<Fact>>& facts) {
  std::vector<std::string> messages(facts.size());
  testing::run_ranks(static_cast<int>(facts.size()), [&](Communicator& communicator) {
    const auto rank = static_cast<size_t>(communicator.rank());
    try {
      require_same_facts(communicator, facts[rank], "start them alike");
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      messages[rank] = error.what();
    }
  });
  for (const std::string& message : messages) EXPECT_EQ(message, messages[0]);
  return messages[0];
}

TEST(Agreement, RanksThatDifferAreNamedWithTheirValues) {
  const std::vector<Fact> usual = {{"seed", "1"}, {"lr", "0.1"}, {"path", ""}};
  EXPECT_EQ(difference_between({usual, usual, usual}), "");
  EXPECT_EQ(difference_between({usual, {{"seed", "1"}, {"lr", "0.2"}, {"path", "x"}}, usual}),
            "the ranks differ: lr is 0.1 on ranks 0 and 2, 0.2 on rank 1; start them alike");
  EXPECT_EQ(
      difference_between({usual, {{"seed", "1"}, {"lr", "0.1"}}, usual, usual}),
      "the ranks differ: path is  on ranks 0, 2 and 3, not given on rank 1; start them alike");
  EXPECT_EQ(difference_between({{{"seed", "1"}}, {{"seed", "1"}, {"more", "7"}}}),
            "the ranks differ: more is not given on rank 0, 7 on rank 1; start them alike");
}

}  // namespace
}  // namespace lockstep::collectives
