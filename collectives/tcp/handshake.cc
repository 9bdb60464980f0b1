// A handshake, as the messages of both ends:
//
//   connecting end                        listening end
//   Hello                           -->
//                                   <--   Notice kProve with challenge L      only with a token
//   TokenProof: challenge C, proof  -->
//                                   <--   Notice kProven with proof
//                                   <--   Notice kWelcome, kFailed or kStranger
//
// Each proof is a keyed hash, under the run's token, of the end's role, L, C and the hello. The
// token itself is never sent. The challenges are random and one comes from each end, so that a
// recorded proof is of no use later; the role keeps an end from sending back the proof that it has
// received.
//
// HandshakeListener never waits for one peer. It keeps up to kMaxPendingPeers connections, each
// with the bytes received so far and a deadline; next() polls them all together with the listener
// and returns the first whose handshake is complete. So a port scanner or a peer that hangs delays
// nobody: it is dropped after kSilenceSeconds or, if the list is full, when it is the oldest.
//
// To change a message: Hello up to `protocol` and Notice must keep their layout, so that different
// versions can still report the mismatch. Raise kHandshakeProtocol for everything else.
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

namespace lockstep::collectives {
namespace {

constexpr double kSendSeconds = 30;       // for a short message to a peer that reads
constexpr double kSilenceSeconds = 10;    // limit for a peer's handshake
constexpr size_t kMaxPendingPeers = 256;  // if there are more, the oldest is dropped
constexpr size_t kMaxReported = 64;       // addresses, and token mismatches

constexpr const char* kConnects = "connects";  // roles of the two ends
constexpr const char* kListens = "listens";

// What both ends compute their proofs from.
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

// Sends a notice that carries a proof in place of text.
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
        "a process uses version {} of the protocol, rank {} on {} uses version {}; all "
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

bool send_answer(const Socket& socket, Answer answer, uint64_t nonce, const std::string& text) {
  Notice notice;
  notice.answer = answer;
  notice.nonce = nonce;
  notice.text = fixed_text<1000>(text);
  return send_notice(socket, notice);
}

Notice receive_notice(const Socket& socket, const Deadline& deadline) {
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

Notice receive_answer(const Socket& socket,
                      const Hello& hello,
                      const Token& token,
                      const Deadline& deadline) {
  constexpr const char* kAlike = "all ranks must be given the same LOCKSTEP_TOKEN";
  Notice notice = receive_notice(socket, deadline);
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
  notice = receive_notice(socket, deadline);
  if (notice.answer != Answer::kProven) return notice;
  if (!same_proof(proof_in(notice), token.prove(kListens, shared)))
    throw SocketError("it does not know this run's token (LOCKSTEP_TOKEN)");
  return receive_notice(socket, deadline);
}

bool is_readable(const Socket& socket, int timeout_ms) {
  pollfd entry{socket.descriptor(), POLLIN | POLLRDHUP, 0};
  return poll(&entry, 1, timeout_ms) > 0;
}

std::optional<IncomingPeer> HandshakeListener::next(int timeout_ms) {
  if (std::optional<IncomingPeer> arrival = read_pending_peers()) return arrival;
  std::vector<pollfd> entries{{listener_.descriptor(), POLLIN, 0}};
  for (const PendingPeer& peer : pending_peers_)
    entries.push_back({peer.socket.descriptor(), POLLIN, 0});
  if (poll(entries.data(), entries.size(), timeout_ms) <= 0) return std::nullopt;
  // Limits the connections taken at once: a peer that connects without end must not delay the
  // others.
  for (size_t taken = 0; taken < kMaxPendingPeers; ++taken) {
    Socket socket = accept_from(listener_);
    if (!socket.is_open()) break;
    if (pending_peers_.size() == kMaxPendingPeers) pending_peers_.erase(pending_peers_.begin());
    pending_peers_.push_back({.socket = std::move(socket), .deadline = Deadline(kSilenceSeconds)});
  }
  return read_pending_peers();
}

std::optional<IncomingPeer> HandshakeListener::read_pending_peers() {
  for (size_t i = 0; i < pending_peers_.size();) {
    std::string why;
    const State state = read(pending_peers_[i], why);
    if (state == State::kWaiting) {
      ++i;
      continue;
    }
    PendingPeer peer = std::move(pending_peers_[i]);
    pending_peers_.erase(pending_peers_.begin() + static_cast<std::ptrdiff_t>(i));
    if (state == State::kComplete) return IncomingPeer{peer.hello, std::move(peer.socket)};
    drop(peer, why);
  }
  return std::nullopt;
}

HandshakeListener::State HandshakeListener::read(PendingPeer& peer, std::string& why) {
  if (!peer.asked) {
    const State state = receive(peer, &peer.hello, sizeof(peer.hello), why);
    if (state != State::kComplete || !token_.is_set()) return state;
    if (handle_hello(peer, why) == State::kDropped) return State::kDropped;
  }
  const State state = receive(peer, &peer.proof, sizeof(peer.proof), why);
  return state == State::kComplete ? handle_proof(peer, why) : state;
}

// Receives what has arrived of a message that begins with the magic number.
HandshakeListener::State HandshakeListener::receive(PendingPeer& peer,
                                                    void* message,
                                                    size_t bytes,
                                                    std::string& why) const {
  const ssize_t received = ::recv(peer.socket.descriptor(),
                                  static_cast<char*>(message) + peer.received,
                                  bytes - peer.received,
                                  0);
  if (received > 0) {
    peer.received += static_cast<size_t>(received);
    uint64_t magic = 0;
    std::memcpy(&magic, message, sizeof(magic));
    if (peer.received >= sizeof(magic) && magic != kHandshakeMagic) {
      why = "is not Lockstep";
      return State::kDropped;
    }
    if (peer.received == bytes) return State::kComplete;
  } else if (received == 0 || (errno != EAGAIN && errno != EINTR)) {
    why = peer.asked ? "does not know the run's token (LOCKSTEP_TOKEN)" : "has disconnected";
    return State::kDropped;
  }
  if (!peer.deadline.passed()) return State::kWaiting;
  why = fmt::format("has not identified itself within {:g} s", kSilenceSeconds);
  return State::kDropped;
}

// Asks a peer that has sent its hello for the proof.
HandshakeListener::State HandshakeListener::handle_hello(PendingPeer& peer,
                                                         std::string& why) const {
  if (peer.hello.protocol != kHandshakeProtocol) {
    why = "runs another version of Lockstep";
    send_answer(peer.socket, Answer::kFailed, 0, "all ranks must run the same Lockstep");
    return State::kDropped;
  }
  peer.challenge = random_proof();
  peer.asked = true;
  peer.received = 0;
  const bool sent = send_proof(peer.socket, Answer::kProve, peer.challenge);
  if (!sent) why = "has disconnected";
  return sent ? State::kWaiting : State::kDropped;
}

HandshakeListener::State HandshakeListener::handle_proof(PendingPeer& peer,
                                                         std::string& why) const {
  const std::string shared = evidence(peer.hello, peer.challenge, peer.proof.challenge);
  if (!same_proof(peer.proof.proof, token_.prove(kConnects, shared))) {
    why = "has another token (LOCKSTEP_TOKEN)";
    send_answer(peer.socket,
                Answer::kFailed,
                0,
                "this rank has another token: all ranks must be given the same LOCKSTEP_TOKEN");
    return State::kDropped;
  }
  if (send_proof(peer.socket, Answer::kProven, token_.prove(kListens, shared)))
    return State::kComplete;
  why = "has disconnected";
  return State::kDropped;
}

std::optional<HandshakeListener::TokenMismatch> HandshakeListener::next_token_mismatch() {
  if (token_mismatches_.empty()) return std::nullopt;
  TokenMismatch last = std::move(token_mismatches_.back());
  token_mismatches_.pop_back();
  return last;
}

void HandshakeListener::drop(const PendingPeer& peer, const std::string& why) {
  std::string address = "an address that is gone";
  try {
    address = peer_address(peer.socket);
  } catch (const SocketError&) {
  }
  if (peer.asked && token_mismatches_.size() < kMaxReported)
    token_mismatches_.push_back({peer.hello, address});
  if (reported_addresses_.size() == kMaxReported || !reported_addresses_.insert(address).second)
    return;
  const std::string claim = peer.asked ? fmt::format(", as rank {} on {}",
                                                     peer.hello.rank,
                                                     escape_controls(text_of(peer.hello.host)))
                                       : "";
  print_log(
      fmt::format("lockstep: dropped a connection from {}{}, which {}; further ones from there "
                  "are not logged\n",
                  address,
                  claim,
                  why));
}

}  // namespace lockstep::collectives
