#pragma once
// Sockets that never block for longer than a deadline.

#include <sys/socket.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/time.h"

namespace lockstep {

// A system call on a socket failed, or its deadline passed; what() says which and why. Whoever
// knows the rank at the other end makes a CommError of it.
class SocketError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A socket's descriptor, non-blocking; closes it.
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

// A moment, in milliseconds of now_ms().
class Deadline {
 public:
  explicit Deadline(double seconds) : at_ms_(now_ms() + seconds * 1000) {}
  double left_ms() const { return at_ms_ - now_ms(); }
  bool passed() const { return left_ms() <= 0; }
  // For poll(): at least 1, at most `most`.
  int poll_ms(int most = 1000) const;

 private:
  double at_ms_;
};

// Listens on every address of this host, over IPv6 and IPv4; port 0 takes any free one. `in_use`,
// where given, tells a port that is taken from other failures.
Socket listen_on(int port, bool* in_use = nullptr);
// The same on one address, a number; on every one where this host does not have it, as behind a
// translation of addresses.
Socket listen_at(const std::string& address, int port, bool* in_use = nullptr);
// The number that a host's name stands for; empty where it stands for none.
std::string resolve_first(const std::string& host);
int port_of(const Socket& listener);

// The next connection that waits at `listener`; not open when none does.
Socket accept_from(const Socket& listener);

// Connects to a host by name or number, trying its addresses in turn.
Socket connect_to(const std::string& host, int port, const Deadline& deadline);

// "10.0.0.1", "fe80::1%eth0"; empty where it is no address of the internet.
std::string numeric_address(const sockaddr& address, socklen_t length);

// The other end's address as a number, and this one's.
std::string peer_address(const Socket& socket);
std::string own_address(const Socket& socket);
// Also of the name "localhost".
bool is_loopback(std::string_view address);

// "10.0.0.1:29500" or "[fe80::1]:29500".
std::string endpoint_text(const std::string& address, int port);

// Whole messages of the handshake.
void send_all(const Socket& socket, const void* data, size_t bytes, const Deadline& deadline);
void receive_all(const Socket& socket, void* data, size_t bytes, const Deadline& deadline);

// TimedWaits until the socket can be read or written (poll events); throws when the deadline
// passes.
void wait_for(const Socket& socket, short events, const Deadline& deadline);

}  // namespace lockstep
