// Catches: messages that are lost or joined where bytes come in other pieces than they were sent;
// text of a shell's start-up files that is taken for a message.
#include "launcher/launch/messages.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace lockstep::launch {
namespace {

TEST(MessageReader, GivesWhatWasSentInWhateverPiecesItComes) {
  const std::string binary("a\0b\n", 4);
  const std::string bytes = encode({MessageKind::kOutput, 3, 2, binary}) +
                            encode({MessageKind::kEnded, 3, 137, ""}) + encode({});
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    MessageReader reader;
    std::vector<Message> got;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      reader.add(bytes.substr(at, piece));
      while (std::optional<Message> message = reader.next()) got.push_back(*message);
    }
    ASSERT_EQ(got.size(), 3) << "pieces of " << piece;
    EXPECT_EQ(got[0].kind, MessageKind::kOutput);
    EXPECT_EQ(got[0].text, binary);
    EXPECT_EQ(got[1].rank, 3);
    EXPECT_EQ(got[1].value, 137);
    EXPECT_EQ(got[2].kind, MessageKind::kBeat);
  }
}

TEST(MessageReader, RefusesWhatIsNoMessage) {
  MessageReader reader;
  reader.add("Welcome to node1\n");
  EXPECT_THROW(reader.next(), CommError);
  MessageReader huge;
  std::string bytes = encode({MessageKind::kOutput, 0, 1, ""});
  bytes.replace(bytes.size() - 4, 4, "\xff\xff\xff\xff");
  huge.add(bytes);
  EXPECT_THROW(huge.next(), CommError);
}

TEST(StartOrder, ComesBackAsItWas) {
  const StartOrder order{"/a folder \xff",
                         {"lockstep", "train", "x y", "\xc3\xa9 \xff\xfe \x80\xc0"},
                         {{2, {"RANK=2", "A=b=c"}}},
                         30,
                         660};
  const StartOrder back = start_order_from(to_text(order));
  EXPECT_EQ(back.folder, order.folder);
  EXPECT_EQ(back.words, order.words);
  EXPECT_EQ(back.silence_s, 30);
  EXPECT_EQ(back.blocked_s, 660);
  ASSERT_EQ(back.ranks.size(), 1);
  EXPECT_EQ(back.ranks[0].rank, 2);
  EXPECT_EQ(back.ranks[0].variables, order.ranks[0].variables);
}

}  // namespace
}  // namespace lockstep::launch
