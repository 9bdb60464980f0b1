#pragma once
// The token of a run: a secret that a launcher gives to all ranks, by which they recognise each
// other. It is never sent. First the connecting end and then the listening end proves that it has
// the token, with a keyed hash of random numbers from both.
//
// The hash is SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, 2012), a pseudorandom
// function for short messages under a secret key of 128 bits. No library that Lockstep links has a
// keyed hash for secrets; this one is thirty lines, and there are published test vectors.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::collectives {

using Proof = std::array<uint8_t, 16>;

// SipHash-2-4-128 of `message` under `key`.
Proof keyed_hash(const Proof& key, std::string_view message);

// Compares two proofs in a time that does not depend on where they differ.
bool same_proof(const Proof& a, const Proof& b);

// Random bytes from the system.
Proof random_proof();

class Token {
 public:
  Token() = default;  // no token: ranks are not authenticated
  // A secret from the user or a launcher. 32 or more random hexadecimal digits give a full key.
  explicit Token(std::string_view secret);
  // A new random secret.
  static Token random();

  bool is_set() const { return !secret_.empty(); }
  // For ranks that share another channel: Token(secret()) is the same token.
  const std::string& secret() const { return secret_; }
  // The proof, for this message, that its sender knows the token; `role` distinguishes the two
  // ends.
  Proof prove(std::string_view role, std::string_view message) const;

 private:
  std::string secret_;
  Proof key_{};
};

}  // namespace lockstep::collectives
