#pragma once
// What two processes say to each other before they are ranks of one run. All messages have a fixed
// size; the bytes up to and including `protocol` and the Notice keep their layout for ever, so that
// any two Lockstep programs can at least tell each other why they do not go together.

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

namespace lockstep {

constexpr uint64_t kHandshakeMagic = 0x70657473'6b636f6cULL;  // "lockstep" in memory
constexpr uint32_t kHandshakeProtocol = 2;

// Text of a fixed size, cut where it is longer, zero-terminated.
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

// Whoever connects says who it is.
struct Hello {
  uint64_t magic = kHandshakeMagic;
  uint32_t protocol = kHandshakeProtocol;
  int32_t rank = 0, size = 0;
  uint32_t listens_at = 0;  // port where the ranks above this one reach it
  uint64_t nonce = 0;       // of rank 0's process, once known: 0 before
  FixedText<32> version{};
  FixedText<128> run{}, host{};
};

enum class Answer : uint32_t {
  kWelcome = 0,
  kFailed = 1,    // the run cannot go on: `text` says why
  kStranger = 2,  // meant for another process: what led here is out of date
  kProve = 3,     // first prove that you have the run's token: `text` begins with a challenge
  kProven = 4     // this end has it, too: `text` begins with its proof; another notice follows
};

// The answer to a hello, and what rank 0 and the others tell each other between the phases.
struct Notice {
  uint64_t magic = kHandshakeMagic;
  Answer answer = Answer::kWelcome;
  uint32_t reserved = 0;
  uint64_t nonce = 0;
  FixedText<1000> text{};
};

// The answer to kProve: a challenge for the other end, and a proof from both challenges and the
// hello.
struct TokenProof {
  uint64_t magic = kHandshakeMagic;
  Proof challenge{}, proof{};
};

// Where a rank can be reached; an empty address stands for rank 0's host, at whatever address the
// reader reached it.
struct TableEntry {
  FixedText<64> address{};
  FixedText<128> host{};
  uint32_t port = 0;
};

// A hello from this process.
Hello hello_of(const TcpOptions& options, uint64_t nonce, int listens_at);

// Why `hello` and this process cannot be ranks of one run; empty where they can.
std::string mismatch(const Hello& hello, const TcpOptions& options);

// Sends a notice; false where the other end is gone.
bool tell(const Socket& socket, Answer answer, uint64_t nonce, const std::string& text);

// Receives a notice. Throws SocketError, also where the other end is no Lockstep.
Notice hear(const Socket& socket, const Deadline& deadline);

// The answer to a hello that was sent, after the proofs that one with a token asks for; where only
// one of both has a token it is kFailed. Throws SocketError, also where the other end does not know
// this one's token.
Notice hear_answer(const Socket& socket,
                   const Hello& hello,
                   const Token& token,
                   const Deadline& deadline);

// True where bytes, or the end of the connection, can be read, after waiting up to timeout_ms.
bool has_news(const Socket& socket, int timeout_ms = 0);

struct Arrival {
  Hello hello;
  Socket socket;
};

// Takes connections at a listener and reads their hellos. One that says nothing, is no Lockstep or,
// where there is a token, does not know it, holds up nobody: it is dropped after some seconds, and
// of each address the first is told on stderr.
class Reception {
 public:
  explicit Reception(const Socket& listener, const Token& token = {})
      : listener_(listener), token_(token) {}
  // The next hello that is complete, and proven, after waiting up to timeout_ms for one.
  std::optional<Arrival> next(int timeout_ms);

  // Who has said hello and then shown another token than this one's, or none. Gives each once.
  struct Impostor {
    Hello hello;
    std::string address;
  };
  std::optional<Impostor> impostor();

 private:
  struct Visitor {
    Socket socket;
    Deadline deadline;
    Hello hello = {};
    bool asked = false;  // to prove that it has the token
    Proof challenge = {};
    TokenProof proof = {};
    size_t received = 0;  // bytes of the hello, or once asked of the proof
  };
  enum class State { kWaits, kArrived, kLeaves };

  std::optional<Arrival> read_visitors();
  State read(Visitor& visitor, std::string& why);
  State receive(Visitor& visitor, void* message, size_t bytes, std::string& why) const;
  State heed_hello(Visitor& visitor, std::string& why) const;
  State heed_proof(Visitor& visitor, std::string& why) const;
  void drop(const Visitor& visitor, const std::string& why);

  const Socket& listener_;
  const Token token_;
  std::vector<Visitor> visitors_;
  std::set<std::string> told_;  // addresses
  std::vector<Impostor> impostors_;
};

}  // namespace lockstep
