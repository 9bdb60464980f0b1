#include "collectives/watch/host_links.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "runtime/base/error.h"

namespace lockstep::collectives {
namespace {

enum Kind : uint32_t { kMoments = 1, kFinding, kLeaving };

struct Head {
  uint32_t kind = 0, bytes = 0;
};

// A FlightMoment as sent to another host.
struct WireMoment {
  int32_t rank = 0;
  FlightPhase phase = FlightPhase::kSetup;
  int64_t process = 0;
  uint64_t beats = 0, alive = 0;
  int64_t step = 0;
  bool waiting = false, left = false, has_last = false;
  FlightEntry last;
  FlightStart begun;
  uint64_t device = 0;
  float device_wait_s = 0;
  bool device_late = false;
  char host[64] = {};
};
static_assert(std::is_trivially_copyable_v<WireMoment>);

WireMoment packed(const FlightMoment& from) {
  WireMoment to = {from.rank,
                   from.phase,
                   from.process,
                   from.beats,
                   from.alive,
                   from.step,
                   from.waiting,
                   from.left,
                   from.last.has_value(),
                   from.last.value_or(FlightEntry{}),
                   from.begun,
                   from.device.word(),
                   static_cast<float>(from.device_wait_s),
                   from.device_late,
                   {}};
  from.host.copy(to.host, sizeof(to.host) - 1);
  return to;
}

FlightMoment unpacked(const WireMoment& from) {
  FlightMoment to = {.rank = from.rank,
                     .process = from.process,
                     .host = std::string(from.host, ::strnlen(from.host, sizeof(from.host))),
                     .beats = from.beats,
                     .alive = from.alive,
                     .step = from.step,
                     .phase = from.phase,
                     .waiting = from.waiting,
                     .left = from.left,
                     .begun = from.begun,
                     .device = DevicePoint::of(from.device),
                     .device_wait_s = from.device_wait_s,
                     .device_late = from.device_late};
  if (from.has_last) to.last = from.last;
  return to;
}

constexpr size_t kMaxFindingBytes = 4096;

}  // namespace

HostLink::HostLink(Socket socket, std::vector<FlightMoment> ranks)
    : socket_(std::move(socket)), ranks_(std::move(ranks)) {}

void HostLink::queue(uint32_t kind, const void* data, size_t bytes) {
  const Head head = {kind, static_cast<uint32_t>(bytes)};
  outgoing_.append(reinterpret_cast<const char*>(&head), sizeof(head));
  outgoing_.append(static_cast<const char*>(data), bytes);
}

void HostLink::report(const std::vector<FlightMoment>& moments) {
  if (!outgoing_.empty() || !socket_.is_open()) return;
  std::vector<WireMoment> wire;
  for (const FlightMoment& moment : moments) wire.push_back(packed(moment));
  queue(kMoments, wire.data(), wire.size() * sizeof(WireMoment));
}

void HostLink::report(const FlightFinding& finding) {
  std::string message(sizeof(int32_t), '\0');
  const int32_t rank = finding.rank;
  std::memcpy(message.data(), &rank, sizeof(rank));
  message += finding.text.substr(0, kMaxFindingBytes - sizeof(rank));
  queue(kFinding, message.data(), message.size());
}

void HostLink::leave() {
  queue(kLeaving, nullptr, 0);
  send();
  if (outgoing_.empty() && socket_.is_open()) ::shutdown(socket_.descriptor(), SHUT_WR);
}

void HostLink::close(const Deadline& deadline) {
  while (socket_.is_open() && !deadline.passed()) {
    pollfd waited = {socket_.descriptor(), POLLIN, 0};
    ::poll(&waited, 1, deadline.poll_ms(100));
    receive();
  }
  socket_.close();
}

void HostLink::move() {
  send();
  receive();
}

void HostLink::lost(std::string why) {
  if (!has_left_ && why_lost_.empty()) why_lost_ = std::move(why);
  socket_.close();
}

void HostLink::send() {
  while (socket_.is_open() && !outgoing_.empty()) {
    const ssize_t sent =
        ::send(socket_.descriptor(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      outgoing_.erase(0, static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      receive();  // it may have announced that it leaves
      return lost(fmt::format("the connection to it broke ({})", std::strerror(errno)));
    }
  }
}

void HostLink::receive() {
  std::array<char, 16384> part;
  while (socket_.is_open()) {
    const ssize_t received = ::recv(socket_.descriptor(), part.data(), part.size(), 0);
    if (received > 0) {
      incoming_.append(part.data(), static_cast<size_t>(received));
      read_messages();
    } else if (received == 0) {
      return lost("its process has ended");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      return lost(fmt::format("the connection to it broke ({})", std::strerror(errno)));
    }
  }
}

void HostLink::read_messages() {
  const size_t max_bytes = std::max(kMaxFindingBytes, ranks_.size() * sizeof(WireMoment));
  size_t done = 0;
  Head head;
  while (incoming_.size() - done >= sizeof(head)) {
    std::memcpy(&head, incoming_.data() + done, sizeof(head));
    if (head.bytes > max_bytes) return lost("it sends no valid watchdog messages");
    if (incoming_.size() - done < sizeof(head) + head.bytes) break;
    read(head.kind, std::string_view(incoming_).substr(done + sizeof(head), head.bytes));
    done += sizeof(head) + head.bytes;
  }
  incoming_.erase(0, done);
}

void HostLink::read(uint32_t kind, std::string_view message) {
  if (kind == kLeaving) {
    has_left_ = true;
    for (FlightMoment& moment : ranks_) moment.left = true;
  }
  if (kind == kFinding && !finding_ && message.size() >= sizeof(int32_t)) {
    int32_t rank = 0;
    std::memcpy(&rank, message.data(), sizeof(rank));
    finding_ = FlightFinding{rank, std::string(message.substr(sizeof(rank)))};
  }
  if (kind != kMoments) return;
  WireMoment wire;
  for (size_t at = 0; at + sizeof(wire) <= message.size(); at += sizeof(wire)) {
    std::memcpy(&wire, message.data() + at, sizeof(wire));
    for (FlightMoment& moment : ranks_)
      if (moment.rank == wire.rank) moment = unpacked(wire);
  }
}

}  // namespace lockstep::collectives
