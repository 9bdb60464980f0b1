#include "collectives/tcp/token.h"

#include <bit>
#include <cstring>
#include <random>

namespace lockstep::collectives {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read in memory order");

struct SipState {
  uint64_t v0, v1, v2, v3;

  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  }
  void add(uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
  uint64_t sum() const { return v0 ^ v1 ^ v2 ^ v3; }
};

uint64_t word_at(const void* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

}  // namespace

Proof keyed_hash(const Proof& key, std::string_view message) {
  const uint64_t k0 = word_at(key.data()), k1 = word_at(key.data() + 8);
  SipState state{k0 ^ 0x736f6d6570736575,
                 k1 ^ 0x646f72616e646f6d ^ 0xee,
                 k0 ^ 0x6c7967656e657261,
                 k1 ^ 0x7465646279746573};
  size_t at = 0;
  for (; at + 8 <= message.size(); at += 8) state.add(word_at(message.data() + at));
  uint64_t last = uint64_t{message.size()} << 56;
  std::memcpy(&last, message.data() + at, message.size() - at);
  state.add(last);
  state.v2 ^= 0xee;
  state.rounds(4);
  const uint64_t low = state.sum();
  state.v1 ^= 0xdd;
  state.rounds(4);
  const uint64_t high = state.sum();
  Proof proof;
  std::memcpy(proof.data(), &low, sizeof(low));
  std::memcpy(proof.data() + 8, &high, sizeof(high));
  return proof;
}

bool same_proof(const Proof& a, const Proof& b) {
  volatile uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference = static_cast<uint8_t>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

Proof random_proof() {
  std::random_device device;
  Proof bytes;
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(device());
  return bytes;
}

Token::Token(std::string_view secret) : secret_(secret), key_(keyed_hash(Proof{}, secret)) {}

Token Token::random() {
  std::string secret;
  for (const uint8_t byte : random_proof()) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    secret += kDigits[byte >> 4];
    secret += kDigits[byte & 15];
  }
  return Token(secret);
}

Proof Token::prove(std::string_view role, std::string_view message) const {
  return keyed_hash(key_, std::string(role) + '\0' + std::string(message));
}

}  // namespace lockstep::collectives
