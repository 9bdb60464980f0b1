// Catches: a hash that is not SipHash; a proof that another token, another role or another message
// would give; a secret that leaves the process.
#include "collectives/tcp/token.h"

#include <gtest/gtest.h>

#include <numeric>

namespace lockstep::collectives {
namespace {

// From the authors' vectors.h (vectors_sip128): the key is 00 01 ... 0f, the message 00 01 ... of
// so many bytes.
TEST(KeyedHash, GivesThePublishedVectors) {
  Proof key;
  std::iota(key.begin(), key.end(), uint8_t{0});
  const std::array<Proof, 3> expected = {Proof{0xa3,
                                               0x81,
                                               0x7f,
                                               0x04,
                                               0xba,
                                               0x25,
                                               0xa8,
                                               0xe6,
                                               0x6d,
                                               0xf6,
                                               0x72,
                                               0x14,
                                               0xc7,
                                               0x55,
                                               0x02,
                                               0x93},
                                         Proof{0xda,
                                               0x87,
                                               0xc1,
                                               0xd8,
                                               0x6b,
                                               0x99,
                                               0xaf,
                                               0x44,
                                               0x34,
                                               0x76,
                                               0x59,
                                               0x11,
                                               0x9b,
                                               0x22,
                                               0xfc,
                                               0x45},
                                         Proof{0x81,
                                               0x77,
                                               0x22,
                                               0x8d,
                                               0xa4,
                                               0xa4,
                                               0x5d,
                                               0xc7,
                                               0xfc,
                                               0xa3,
                                               0x8b,
                                               0xde,
                                               0xf6,
                                               0x0a,
                                               0xff,
                                               0xe4}};
  std::string message;
  for (size_t bytes = 0; bytes < expected.size(); ++bytes) {
    EXPECT_EQ(keyed_hash(key, message), expected[bytes]) << bytes << " bytes";
    message += static_cast<char>(bytes);
  }
}

TEST(Token, ProvesOnlyWhatItWasAskedFor) {
  const Token token("0123456789abcdef");
  const Proof proof = token.prove("connects", "message");
  EXPECT_TRUE(same_proof(proof, Token("0123456789abcdef").prove("connects", "message")));
  EXPECT_FALSE(same_proof(proof, Token("0123456789abcdeg").prove("connects", "message")));
  EXPECT_FALSE(same_proof(proof, token.prove("listens", "message")));
  EXPECT_FALSE(same_proof(proof, token.prove("connects", "messagf")));
  EXPECT_FALSE(same_proof(proof, token.prove("connect", "smessage")));
  for (size_t i = 0; i < proof.size(); ++i) {
    Proof other = proof;
    other[i] ^= 1;
    EXPECT_FALSE(same_proof(proof, other)) << "byte " << i;
  }
}

TEST(Token, IsNoneUnlessSetAndNeverTwiceTheSame) {
  EXPECT_FALSE(Token().is_set());
  EXPECT_FALSE(Token("").is_set());
  EXPECT_TRUE(Token::random().is_set());
  EXPECT_NE(Token::random().secret(), Token::random().secret());
}

}  // namespace
}  // namespace lockstep::collectives
