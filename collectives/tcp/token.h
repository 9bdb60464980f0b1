#pragma once
// The job token: a secret that a launcher gives all ranks of one start, by which they know each
// other from strangers. It is never sent: whoever connects, and then whoever listens, proves that
// it has the token, by a keyed hash of random numbers of both.
//
// The hash is SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, 2012): a pseudorandom
// function made for short messages under a secret key of 128 bits. No library that Lockstep links
// has a keyed hash for secrets; this one is thirty lines, and has published test vectors.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

using Proof = std::array<uint8_t, 16>;

// SipHash-2-4-128 of `message` under `key`.
Proof keyed_hash(const Proof& key, std::string_view message);

// Whether two proofs are equal, in a time that does not tell where they differ.
bool same_proof(const Proof& a, const Proof& b);

// Random bytes of the system.
Proof random_proof();

class Token {
 public:
  Token() = default;  // none: nobody is asked for one
  // A secret of the user's or a launcher's; 32 random hexadecimal digits and more make a full key.
  explicit Token(std::string_view secret);
  // A new one, that nobody knows.
  static Token random();

  bool is_set() const { return !secret_.empty(); }
  // For ranks that share another channel; a secret of Token(secret()).
  const std::string& secret() const { return secret_; }
  // What one who knows the token makes of the message; `role` tells the two ends apart.
  Proof prove(std::string_view role, std::string_view message) const;

 private:
  std::string secret_;
  Proof key_{};
};

}  // namespace lockstep
