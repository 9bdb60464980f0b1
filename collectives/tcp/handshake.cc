#include "collectives/tcp/handshake.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/base/host.h"
#include "runtime/base/streams.h"
#include "runtime/base/text.h"

namespace lockstep {
namespace {

constexpr double kSendSeconds = 30;     // a short message, to one that listens
constexpr double kSilenceSeconds = 10;  // how long a visitor may take to say what it must
constexpr size_t kMostVisitors = 256;   // of more the one that has waited longest leaves
constexpr size_t kMaxTold = 64;         // addresses

constexpr const char* kConnects = "connects";  // roles of the two ends
constexpr const char* kListens = "listens";

// What both ends make their proofs of.
std::string evidence(const Hello& hello, const Proof& of_listener, const Proof& of_connector) {
  std::string text;
  for (const Proof& challenge : {of_listener, of_connector})
    text.append(reinterpret_cast<const char*>(challenge.data()), challenge.size());
  return text.append(reinterpret_cast<const char*>(&hello), sizeof(hello));
}

bool send_notice(const Socket& socket, const Notice& notice) {
  try {
    send_all(socket, &notice, sizeof(notice), Deadline(kSendSeconds));
    return true;
  } catch (const SocketError&) {
    return false;
  }
}

// A notice with bytes in the place of text.
bool send_proof(const Socket& socket, Answer answer, const Proof& proof) {
  Notice notice;
  notice.answer = answer;
  std::memcpy(notice.text.data(), proof.data(), proof.size());
  return send_notice(socket, notice);
}

Proof proof_in(const Notice& notice) {
  Proof proof;
  std::memcpy(proof.data(), notice.text.data(), proof.size());
  return proof;
}

}  // namespace

Hello hello_of(const TcpOptions& options, uint64_t nonce, int listens_at) {
  Hello hello;
  hello.rank = options.rank;
  hello.size = options.size;
  hello.listens_at = static_cast<uint32_t>(listens_at);
  hello.nonce = nonce;
  hello.version = fixed_text<32>(options.version);
  hello.run = fixed_text<128>(options.run);
  hello.host = fixed_text<128>(host_name());
  return hello;
}

std::string mismatch(const Hello& hello, const TcpOptions& options) {
  const std::string who = fmt::format("rank {} on {}", hello.rank, text_of(hello.host));
  if (hello.protocol != kHandshakeProtocol)
    return fmt::format(
        "a process speaks version {} of the protocol, rank {} on {} version {}; all "
        "ranks must run the same Lockstep",
        hello.protocol,
        options.rank,
        host_name(),
        kHandshakeProtocol);
  if (text_of(hello.version) != options.version)
    return fmt::format("{} runs Lockstep {}, rank {} on {} runs {}; all ranks must run the same",
                       who,
                       text_of(hello.version),
                       options.rank,
                       host_name(),
                       options.version);
  if (hello.size != options.size)
    return fmt::format("{} was started as one of {} ranks, rank {} on {} as one of {}",
                       who,
                       hello.size,
                       options.rank,
                       host_name(),
                       options.size);
  if (hello.rank < 0 || hello.rank >= options.size)
    return fmt::format("{} is not one of {} ranks", who, options.size);
  return "";
}

bool tell(const Socket& socket, Answer answer, uint64_t nonce, const std::string& text) {
  Notice notice;
  notice.answer = answer;
  notice.nonce = nonce;
  notice.text = fixed_text<1000>(text);
  return send_notice(socket, notice);
}

Notice hear(const Socket& socket, const Deadline& deadline) {
  Notice notice;
  receive_all(socket, &notice, sizeof(notice.magic), deadline);
  if (notice.magic != kHandshakeMagic)
    throw SocketError("the program that listens there is not Lockstep");
  receive_all(socket,
              reinterpret_cast<char*>(&notice) + sizeof(notice.magic),
              sizeof(notice) - sizeof(notice.magic),
              deadline);
  return notice;
}

Notice hear_answer(const Socket& socket,
                   const Hello& hello,
                   const Token& token,
                   const Deadline& deadline) {
  constexpr const char* kAlike = "all ranks must be given the same LOCKSTEP_TOKEN";
  Notice notice = hear(socket, deadline);
  const bool asked = notice.answer == Answer::kProve;
  if (token.is_set() ? notice.answer == Answer::kWelcome : asked) {
    notice.answer = Answer::kFailed;
    notice.text = fixed_text<1000>(fmt::format("the other end {} a token, this rank {}: {}",
                                               asked ? "asks for" : "does not ask for",
                                               asked ? "has none" : "has one",
                                               kAlike));
  }
  if (notice.answer != Answer::kProve) return notice;
  TokenProof mine;
  mine.challenge = random_proof();
  const std::string shared = evidence(hello, proof_in(notice), mine.challenge);
  mine.proof = token.prove(kConnects, shared);
  send_all(socket, &mine, sizeof(mine), deadline);
  notice = hear(socket, deadline);
  if (notice.answer != Answer::kProven) return notice;
  if (!same_proof(proof_in(notice), token.prove(kListens, shared)))
    throw SocketError("it does not know this run's token (LOCKSTEP_TOKEN)");
  return hear(socket, deadline);
}

bool has_news(const Socket& socket, int timeout_ms) {
  pollfd entry{socket.descriptor(), POLLIN | POLLRDHUP, 0};
  return poll(&entry, 1, timeout_ms) > 0;
}

std::optional<Arrival> Reception::next(int timeout_ms) {
  if (std::optional<Arrival> arrival = read_visitors()) return arrival;
  std::vector<pollfd> entries{{listener_.descriptor(), POLLIN, 0}};
  for (const Visitor& visitor : visitors_)
    entries.push_back({visitor.socket.descriptor(), POLLIN, 0});
  if (poll(entries.data(), entries.size(), timeout_ms) <= 0) return std::nullopt;
  // Not more at once: whoever connects without end must not keep others from being heard.
  for (size_t taken = 0; taken < kMostVisitors; ++taken) {
    Socket socket = accept_from(listener_);
    if (!socket.is_open()) break;
    if (visitors_.size() == kMostVisitors) visitors_.erase(visitors_.begin());
    visitors_.push_back({.socket = std::move(socket), .deadline = Deadline(kSilenceSeconds)});
  }
  return read_visitors();
}

std::optional<Arrival> Reception::read_visitors() {
  for (size_t i = 0; i < visitors_.size();) {
    std::string why;
    const State state = read(visitors_[i], why);
    if (state == State::kWaits) {
      ++i;
      continue;
    }
    Visitor visitor = std::move(visitors_[i]);
    visitors_.erase(visitors_.begin() + static_cast<std::ptrdiff_t>(i));
    if (state == State::kArrived) return Arrival{visitor.hello, std::move(visitor.socket)};
    drop(visitor, why);
  }
  return std::nullopt;
}

Reception::State Reception::read(Visitor& visitor, std::string& why) {
  if (!visitor.asked) {
    const State state = receive(visitor, &visitor.hello, sizeof(visitor.hello), why);
    if (state != State::kArrived || !token_.is_set()) return state;
    if (heed_hello(visitor, why) == State::kLeaves) return State::kLeaves;
  }
  const State state = receive(visitor, &visitor.proof, sizeof(visitor.proof), why);
  return state == State::kArrived ? heed_proof(visitor, why) : state;
}

// What is there of a message that begins with the magic number.
Reception::State Reception::receive(Visitor& visitor,
                                    void* message,
                                    size_t bytes,
                                    std::string& why) const {
  const ssize_t received = ::recv(visitor.socket.descriptor(),
                                  static_cast<char*>(message) + visitor.received,
                                  bytes - visitor.received,
                                  0);
  if (received > 0) {
    visitor.received += static_cast<size_t>(received);
    uint64_t magic = 0;
    std::memcpy(&magic, message, sizeof(magic));
    if (visitor.received >= sizeof(magic) && magic != kHandshakeMagic) {
      why = "is no Lockstep";
      return State::kLeaves;
    }
    if (visitor.received == bytes) return State::kArrived;
  } else if (received == 0 || (errno != EAGAIN && errno != EINTR)) {
    why = visitor.asked ? "does not know the run's token (LOCKSTEP_TOKEN)" : "has left";
    return State::kLeaves;
  }
  if (!visitor.deadline.passed()) return State::kWaits;
  why = fmt::format("has not said who it is in {:g} s", kSilenceSeconds);
  return State::kLeaves;
}

// Asks who has said hello for the proof.
Reception::State Reception::heed_hello(Visitor& visitor, std::string& why) const {
  if (visitor.hello.protocol != kHandshakeProtocol) {
    why = "runs another version of Lockstep";
    tell(visitor.socket, Answer::kFailed, 0, "all ranks must run the same Lockstep");
    return State::kLeaves;
  }
  visitor.challenge = random_proof();
  visitor.asked = true;
  visitor.received = 0;
  const bool sent = send_proof(visitor.socket, Answer::kProve, visitor.challenge);
  if (!sent) why = "has left";
  return sent ? State::kWaits : State::kLeaves;
}

Reception::State Reception::heed_proof(Visitor& visitor, std::string& why) const {
  const std::string shared = evidence(visitor.hello, visitor.challenge, visitor.proof.challenge);
  if (!same_proof(visitor.proof.proof, token_.prove(kConnects, shared))) {
    why = "has another token (LOCKSTEP_TOKEN)";
    tell(visitor.socket,
         Answer::kFailed,
         0,
         "this rank's token is another one: all ranks must be given the same LOCKSTEP_TOKEN");
    return State::kLeaves;
  }
  if (send_proof(visitor.socket, Answer::kProven, token_.prove(kListens, shared)))
    return State::kArrived;
  why = "has left";
  return State::kLeaves;
}

std::optional<Reception::Impostor> Reception::impostor() {
  if (impostors_.empty()) return std::nullopt;
  Impostor last = std::move(impostors_.back());
  impostors_.pop_back();
  return last;
}

void Reception::drop(const Visitor& visitor, const std::string& why) {
  std::string address = "an address that is gone";
  try {
    address = peer_address(visitor.socket);
  } catch (const SocketError&) {
  }
  if (visitor.asked && impostors_.size() < kMaxTold) impostors_.push_back({visitor.hello, address});
  if (told_.size() == kMaxTold || !told_.insert(address).second) return;
  const std::string claim = visitor.asked
                                ? fmt::format(", as rank {} on {}",
                                              visitor.hello.rank,
                                              escape_controls(text_of(visitor.hello.host)))
                                : "";
  print_log(fmt::format(
      "lockstep: dropped a connection from {}{}, which {}; others from there are not told\n",
      address,
      claim,
      why));
}

}  // namespace lockstep
