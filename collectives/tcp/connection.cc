#include "collectives/tcp/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/flight_reader.h"

namespace lockstep::collectives {
namespace {

constexpr uint32_t kFrameMagic = 0x4c53'4652;
constexpr uint64_t kMaxFailureText = 2000;

const char* name_of(FrameKind kind) {
  switch (kind) {
    case FrameKind::kExchange: return "exchange";
    case FrameKind::kAllGather: return "all-gather";
    case FrameKind::kReduceScatter: return "reduce-scatter";
    case FrameKind::kBroadcast: return "broadcast";
    case FrameKind::kGoodbye: return "goodbye";
    case FrameKind::kFailure: return "failure";
    case FrameKind::kAbort: return "abort";
  }
  return "unknown frame";
}

bool reports_failure(FrameKind kind) {
  return kind == FrameKind::kFailure || kind == FrameKind::kAbort;
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

std::string text_of(const FrameHeader& header) {
  return fmt::format(
      "{} of {} bytes (operation {})", name_of(header.kind), header.bytes, header.sequence);
}

void FrameQueue::push(const Frame& frame) {
  LOCKSTEP_CHECK(count_ < frames_.size());
  frames_[(first_ + count_++) % frames_.size()] = frame;
}

bool FrameQueue::has(int operation) const {
  for (size_t i = 0; i < count_; ++i) {
    if (frames_[(first_ + i) % frames_.size()].operation == operation) return true;
  }
  return false;
}

void FrameQueue::pop() {
  first_ = (first_ + 1) % frames_.size();
  --count_;
}

Connection::Connection(
    Socket socket, int rank, std::string name, std::string own_name, Outstanding& outstanding)
    : socket_(std::move(socket)),
      rank_(rank),
      name_(std::move(name)),
      own_name_(std::move(own_name)),
      outstanding_(outstanding) {}

void Connection::queue_send(const FrameHeader& header, const std::byte* data, int operation) {
  FrameQueue::Frame frame{header, const_cast<std::byte*>(data), 0, operation};  // only read
  frame.header.magic = kFrameMagic;
  sending_.push(frame);
  ++outstanding_[static_cast<size_t>(operation)];
}

void Connection::queue_receive(const FrameHeader& header, std::byte* data, int operation) {
  receiving_.push({header, data, 0, operation});
  ++outstanding_[static_cast<size_t>(operation)];
}

size_t Connection::progress() { return progress_receiving() + progress_sending(); }

short Connection::wanted_events() const {
  short events = 0;
  // A complete header with nothing queued to receive it belongs to an operation that this rank has
  // not started yet.
  const bool parked = arriving_bytes_ == sizeof(arriving_) && receiving_.empty() &&
                      !reports_failure(arriving_.kind);
  if (!parked && !at_end_) events |= POLLIN;
  if (!sending_.empty()) events |= POLLOUT;
  return events;
}

size_t Connection::progress_sending() {
  size_t total = 0;
  while (!sending_.empty()) {
    FrameQueue::Frame& frame = sending_.front();
    const size_t size = sizeof(FrameHeader) + frame.header.bytes;
    iovec parts[2];
    msghdr message{};
    message.msg_iov = parts;
    if (frame.moved < sizeof(FrameHeader)) {
      parts[message.msg_iovlen++] = {reinterpret_cast<std::byte*>(&frame.header) + frame.moved,
                                     sizeof(FrameHeader) - frame.moved};
    }
    const size_t done = frame.moved - std::min(frame.moved, sizeof(FrameHeader));
    if (done < frame.header.bytes)
      parts[message.msg_iovlen++] = {frame.data + done, frame.header.bytes - done};
    const ssize_t sent = sendmsg(socket_.descriptor(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && would_block(errno)) break;
    if (sent < 0) {
      const int error = errno;
      progress_receiving();  // the other end may have sent the reason before it closed
      lost(std::strerror(error));
    }
    total += static_cast<size_t>(sent);
    frame.moved += static_cast<size_t>(sent);
    if (frame.moved < size) continue;
    --outstanding_[static_cast<size_t>(frame.operation)];
    sending_.pop();
  }
  return total;
}

// Receives up to `bytes`; returns 0 if nothing is there or the stream has ended.
size_t Connection::receive(std::byte* data, size_t bytes) {
  while (true) {
    const ssize_t received = recv(socket_.descriptor(), data, bytes, 0);
    if (received > 0) return static_cast<size_t>(received);
    if (received == 0) {
      at_end_ = true;
      return 0;
    }
    if (errno == EINTR) continue;
    if (would_block(errno)) return 0;
    lost(std::strerror(errno));
  }
}

size_t Connection::progress_receiving() {
  size_t total = 0;
  while (!at_end_) {
    if (arriving_bytes_ < sizeof(arriving_)) {
      const size_t received = receive(reinterpret_cast<std::byte*>(&arriving_) + arriving_bytes_,
                                      sizeof(arriving_) - arriving_bytes_);
      if (received == 0) break;
      total += received;
      arriving_bytes_ += received;
      if (arriving_bytes_ < sizeof(arriving_)) continue;
      if (arriving_.magic != kFrameMagic)
        throw CommError("{}: {} sent bytes that are not a frame", own_name_, name_);
    }
    if (arriving_.kind == FrameKind::kGoodbye || reports_failure(arriving_.kind)) {
      if (receive_control_frame(total)) continue;
      break;
    }
    if (receiving_.empty()) return total;
    require_expected();
    FrameQueue::Frame& frame = receiving_.front();
    if (frame.moved < frame.header.bytes) {
      const size_t received = receive(frame.data + frame.moved, frame.header.bytes - frame.moved);
      if (received == 0) break;
      total += received;
      frame.moved += received;
    }
    if (frame.moved < frame.header.bytes) continue;
    --outstanding_[static_cast<size_t>(frame.operation)];
    receiving_.pop();
    arriving_bytes_ = 0;
  }
  if (at_end_ && (!got_goodbye_ || !receiving_.empty() || arriving_bytes_ > 0))
    lost(got_goodbye_ ? "its process has ended" : "the connection was closed");
  return total;
}

// Returns false if more has to arrive. Throws the failure that the other end reports.
bool Connection::receive_control_frame(size_t& moved) {
  if (arriving_.kind == FrameKind::kGoodbye) {
    got_goodbye_ = true;
    arriving_bytes_ = 0;
    return true;
  }
  failure_.resize(std::min(arriving_.bytes, kMaxFailureText));
  const size_t received = receive(reinterpret_cast<std::byte*>(failure_.data()) + failure_bytes_,
                                  failure_.size() - failure_bytes_);
  moved += received;
  failure_bytes_ += received;
  if (failure_bytes_ < failure_.size()) return false;
  if (arriving_.kind == FrameKind::kAbort) throw ReportedError("{}", failure_);
  throw CommError("{}", failure_);
}

void Connection::require_expected() {
  const FrameHeader& expected = receiving_.front().header;
  if (arriving_.kind == expected.kind && arriving_.sequence == expected.sequence &&
      arriving_.bytes == expected.bytes)
    return;
  throw CommError("the ranks do different things: {} is at {}, {} at {}",
                  own_name_,
                  text_of(expected),
                  name_,
                  text_of(arriving_));
}

void Connection::lost(const char* why) {
  at_end_ = true;
  throw CommError("{}: lost {}: {}{}", own_name_, name_, why, last_seen(rank_));
}

void Connection::require_answering_host() {
  constexpr uint32_t kSilenceMs = 180'000;  // up to 120 s lie between two retransmissions
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (getsockopt(socket_.descriptor(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return;
  if (info.tcpi_retransmits > 0 && info.tcpi_last_ack_recv > kSilenceMs)
    lost("its host does not answer");
}

void Connection::end_sending(FrameKind kind, const std::string& text) {
  if (!socket_.is_open()) return;
  const bool between_frames = sending_.empty() || sending_.front().moved == 0;
  if (between_frames) {
    FrameHeader header;
    header.magic = kFrameMagic;
    header.kind = kind;
    header.bytes = std::min(text.size(), kMaxFailureText);
    try {
      const Deadline deadline(2);
      send_all(socket_, &header, sizeof(header), deadline);
      send_all(socket_, text.data(), header.bytes, deadline);
    } catch (const SocketError&) {  // then the other end notices the end of the stream
    }
  }
  shutdown(socket_.descriptor(), SHUT_WR);
}

bool Connection::drain() {
  std::array<std::byte, 4096> dropped;
  while (true) {
    const ssize_t received = recv(socket_.descriptor(), dropped.data(), dropped.size(), 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return received == 0 || !would_block(errno);
  }
}

}  // namespace lockstep::collectives
