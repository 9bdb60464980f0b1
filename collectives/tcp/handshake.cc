#include "collectives/tcp/handshake.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "runtime/base/host.h"

namespace lockstep {
namespace {

constexpr double kSilenceSeconds = 30;  // how long a visitor may take to say its hello

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
  try {
    send_all(socket, &notice, sizeof(notice), Deadline(kSilenceSeconds));
    return true;
  } catch (const SocketError&) {
    return false;
  }
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
  while (true) {
    Socket socket = accept_from(listener_);
    if (!socket.is_open()) break;
    visitors_.push_back({std::move(socket), Deadline(kSilenceSeconds), {}, 0});
  }
  return read_visitors();
}

std::optional<Arrival> Reception::read_visitors() {
  for (size_t i = 0; i < visitors_.size();) {
    Visitor& visitor = visitors_[i];
    const ssize_t received = ::recv(visitor.socket.descriptor(),
                                    reinterpret_cast<char*>(&visitor.hello) + visitor.received,
                                    sizeof(Hello) - visitor.received,
                                    0);
    bool leaves = visitor.deadline.passed();
    if (received > 0) {
      visitor.received += static_cast<size_t>(received);
      leaves = visitor.received >= sizeof(uint64_t) && visitor.hello.magic != kHandshakeMagic;
    } else if (received == 0 || (errno != EAGAIN && errno != EINTR)) {
      leaves = true;
    }
    const auto place = visitors_.begin() + static_cast<std::ptrdiff_t>(i);
    if (!leaves && visitor.received == sizeof(Hello)) {
      Arrival arrival{visitor.hello, std::move(visitor.socket)};
      visitors_.erase(place);
      return arrival;
    }
    if (leaves) {
      visitors_.erase(place);
    } else {
      ++i;
    }
  }
  return std::nullopt;
}

}  // namespace lockstep
