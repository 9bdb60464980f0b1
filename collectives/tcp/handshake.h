#pragma once
// The messages of two processes before they are ranks of one run. All messages have a fixed size.
// The bytes of Hello up to and including `protocol`, and Notice, never change their layout, so that
// any two versions of Lockstep can at least report why they cannot work together.

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/tcp/options.h"
#include "collectives/tcp/socket.h"
#include "collectives/tcp/token.h"

namespace lockstep::collectives {

constexpr uint64_t kHandshakeMagic = 0x70657473'6b636f6cULL;  // "lockstep" in memory
constexpr uint32_t kHandshakeProtocol = 2;

// Zero-terminated text of fixed size; longer text is truncated.
template <size_t N>
using FixedText = std::array<char, N>;

template <size_t N>
FixedText<N> fixed_text(std::string_view text) {
  FixedText<N> fixed{};
  text.copy(fixed.data(), N - 1);
  return fixed;
}

template <size_t N>
std::string text_of(const FixedText<N>& fixed) {
  return std::string(fixed.data(), strnlen(fixed.data(), N));
}

// The first message of whoever connects.
struct Hello {
  uint64_t magic = kHandshakeMagic;
  uint32_t protocol = kHandshakeProtocol;
  int32_t rank = 0, size = 0;
  uint32_t listens_at = 0;  // the port at which higher ranks reach this one
  uint64_t nonce = 0;       // of rank 0's process; 0 while it is unknown
  FixedText<32> version{};
  FixedText<128> run{}, host{};
};

enum class Answer : uint32_t {
  kWelcome = 0,
  kFailed = 1,    // the run cannot continue: `text` has the reason
  kStranger = 2,  // the hello is for another process: the sender's address is out of date
  kProve = 3,     // prove first that you have the run's token: `text` begins with a challenge
  kProven = 4  // this end has the token too: `text` begins with its proof; another notice follows
};

// The answer to a hello, and the message between rank 0 and the others after each phase.
struct Notice {
  uint64_t magic = kHandshakeMagic;
  Answer answer = Answer::kWelcome;
  uint32_t reserved = 0;
  uint64_t nonce = 0;
  FixedText<1000> text{};
};

// The answer to kProve: a challenge for the other end, and a proof computed from both challenges
// and the hello.
struct TokenProof {
  uint64_t magic = kHandshakeMagic;
  Proof challenge{}, proof{};
};

// Where a rank can be reached. An empty address means rank 0's host, at the address by which the
// reader has reached it.
struct TableEntry {
  FixedText<64> address{};
  FixedText<128> host{};
  uint32_t port = 0;
};

// Makes the hello of this process.
Hello hello_of(const TcpOptions& options, uint64_t nonce, int listens_at);

// Returns why `hello` and this process cannot be ranks of one run; empty if they can.
std::string mismatch(const Hello& hello, const TcpOptions& options);

// Sends a notice; returns false if the other end is gone.
bool send_answer(const Socket& socket, Answer answer, uint64_t nonce, const std::string& text);

// Receives a notice. Throws SocketError, also if the other end is not Lockstep.
Notice receive_notice(const Socket& socket, const Deadline& deadline);

// Receives the answer to a hello, after the exchange of proofs if the other end asks for it. If
// only one end has a token, the answer is kFailed. Throws SocketError, also if the other end does
// not know this end's token.
Notice receive_answer(const Socket& socket,
                      const Hello& hello,
                      const Token& token,
                      const Deadline& deadline);

// Waits up to timeout_ms; returns true if bytes, or the end of the connection, can be read.
bool is_readable(const Socket& socket, int timeout_ms = 0);

// A process that connected and sent its hello.
struct IncomingPeer {
  Hello hello;
  Socket socket;
};

// Accepts connections and reads their hellos. A peer that sends nothing, is not Lockstep, or does
// not know the token delays nobody: it is dropped after some seconds, and the first one from each
// address is reported on stderr.
class HandshakeListener {
 public:
  explicit HandshakeListener(const Socket& listener, const Token& token = {})
      : listener_(listener), token_(token) {}
  // Waits up to timeout_ms for the next hello that is complete and, with a token, proven.
  std::optional<IncomingPeer> next(int timeout_ms);

  // A peer that sent a hello and then did not know the token. Returns each one once.
  struct TokenMismatch {
    Hello hello;
    std::string address;
  };
  std::optional<TokenMismatch> next_token_mismatch();

 private:
  struct PendingPeer {
    Socket socket;
    Deadline deadline;
    Hello hello = {};
    bool asked = false;  // for the proof that it has the token
    Proof challenge = {};
    TokenProof proof = {};
    size_t received = 0;  // bytes of the hello or, once asked, of the proof
  };
  enum class State { kWaiting, kComplete, kDropped };

  std::optional<IncomingPeer> read_pending_peers();
  State read(PendingPeer& peer, std::string& why);
  State receive(PendingPeer& peer, void* message, size_t bytes, std::string& why) const;
  State handle_hello(PendingPeer& peer, std::string& why) const;
  State handle_proof(PendingPeer& peer, std::string& why) const;
  void drop(const PendingPeer& peer, const std::string& why);

  const Socket& listener_;
  const Token token_;
  std::vector<PendingPeer> pending_peers_;
  std::set<std::string> reported_addresses_;  // addresses
  std::vector<TokenMismatch> token_mismatches_;
};

}  // namespace lockstep::collectives
