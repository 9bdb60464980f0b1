#pragma once
// Sockets whose operations end by a deadline.

#include <sys/socket.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/time.h"

namespace lockstep::collectives {

// A system call on a socket failed, or its deadline passed; what() has the call and the reason.
// Callers that know the rank at the other end turn it into a CommError.
class SocketError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Owns a non-blocking socket's descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket() { close(); }
  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  void close();

 private:
  int descriptor_ = -1;
};

// A point in time.
class Deadline {
 public:
  explicit Deadline(double seconds) : at_ms_(now_ms() + seconds * 1000) {}
  double left_ms() const { return at_ms_ - now_ms(); }
  bool passed() const { return left_ms() <= 0; }
  // The remaining time for poll(): at least 1, at most `max_ms`.
  int poll_ms(int max_ms = 1000) const;

 private:
  double at_ms_;
};

// Listens on all addresses of this host, over IPv6 and IPv4. Port 0 takes any free one. If `in_use`
// is given, it is set to whether the port was taken, as opposed to other failures.
Socket listen_on(int port, bool* in_use = nullptr);
// The same on one numeric address. Listens on all addresses if this host does not have it, as
// behind address translation (NAT).
Socket listen_at(const std::string& address, int port, bool* in_use = nullptr);
// The same without another address instead.
Socket listen_only_at(const std::string& address, int port);
// The numeric address to which a host's name resolves; empty if it does not.
std::string resolve_first(const std::string& host);
int port_of(const Socket& listener);

// The next waiting connection of `listener`; not open if there is none.
Socket accept_from(const Socket& listener);

// Connects to a host by name or address, trying its addresses in turn.
Socket connect_to(const std::string& host, int port, const Deadline& deadline);

// "10.0.0.1" or "fe80::1%eth0"; empty if it is not an internet address.
std::string numeric_address(const sockaddr& address, socklen_t length);

// The numeric addresses of the other end and of this one.
std::string peer_address(const Socket& socket);
std::string own_address(const Socket& socket);
// Also true for the name "localhost".
bool is_loopback(std::string_view address);

// "10.0.0.1:29500" or "[fe80::1]:29500".
std::string endpoint_text(const std::string& address, int port);

// Send and receive all `bytes`; throw when the deadline passes.
void send_all(const Socket& socket, const void* data, size_t bytes, const Deadline& deadline);
void receive_all(const Socket& socket, void* data, size_t bytes, const Deadline& deadline);

// Waits until the socket can be read or written (poll's `events`); throws when the deadline passes.
void wait_for(const Socket& socket, short events, const Deadline& deadline);

}  // namespace lockstep::collectives
