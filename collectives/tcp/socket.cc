#include "collectives/tcp/socket.h"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace lockstep::collectives {
namespace {

[[noreturn]] void fail(const char* what, int error) {
  throw SocketError(fmt::format("{}: {}", what, std::strerror(error)));
}

void set_option(const Socket& socket, int level, int option, int value) {
  setsockopt(socket.descriptor(), level, option, &value, sizeof(value));
}

// Sends small messages at once. A host that is gone is noticed after two minutes if nothing is in
// flight to it. TCP_USER_TIMEOUT, for data in flight, is not set: it would also end a connection to
// a live rank that does not read for that long.
void tune(const Socket& socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 6);
}

Socket new_socket(int family) {
  return Socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

int bind_and_listen(const Socket& socket, int family, int port) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_in);
  if (family == AF_INET6) {
    auto* address = reinterpret_cast<sockaddr_in6*>(&storage);
    address->sin6_family = AF_INET6;
    address->sin6_port = htons(static_cast<uint16_t>(port));
    length = sizeof(sockaddr_in6);
    set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  } else {
    auto* address = reinterpret_cast<sockaddr_in*>(&storage);
    address->sin_family = AF_INET;
    address->sin_port = htons(static_cast<uint16_t>(port));
  }
  // Allows a port whose last run has just ended.
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(socket.descriptor(), reinterpret_cast<sockaddr*>(&storage), length) != 0) return errno;
  return ::listen(socket.descriptor(), SOMAXCONN) != 0 ? errno : 0;
}

// Returns 0 and sets `socket`, or returns errno: EADDRNOTAVAIL if `address` is not numeric, or not
// one of this host's.
int listen_at_numeric(const std::string& address, int port, Socket& socket) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    return EADDRNOTAVAIL;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> only(found, freeaddrinfo);
  socket = new_socket(found->ai_family);
  if (!socket.is_open()) return errno;
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(socket.descriptor(), found->ai_addr, found->ai_addrlen) != 0) return errno;
  return ::listen(socket.descriptor(), SOMAXCONN) == 0 ? 0 : errno;
}

// Connects to one address by the deadline. Returns 0 or errno.
int connect_one(const Socket& socket, const addrinfo& address, const Deadline& deadline) {
  if (::connect(socket.descriptor(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  try {
    wait_for(socket, POLLOUT, deadline);
  } catch (const SocketError&) {
    return ETIMEDOUT;
  }
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

// A program that connects to a port of its own host on which nobody listens may be given that very
// port as its own end, and so connect to itself.
bool is_self_connection(const Socket& socket) {
  sockaddr_storage own{}, other{};
  socklen_t own_length = sizeof(own), other_length = sizeof(other);
  getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&own), &own_length);
  getpeername(socket.descriptor(), reinterpret_cast<sockaddr*>(&other), &other_length);
  return own_length == other_length && std::memcmp(&own, &other, own_length) == 0;
}

}  // namespace

void Socket::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

int Deadline::poll_ms(int max_ms) const {
  return static_cast<int>(std::clamp(left_ms(), 1.0, static_cast<double>(max_ms)));
}

Socket listen_on(int port, bool* in_use) {
  int error = EAFNOSUPPORT;
  for (const int family : {AF_INET6, AF_INET}) {  // IPv6 may be switched off
    Socket socket = new_socket(family);
    if (!socket.is_open()) continue;
    error = bind_and_listen(socket, family, port);
    if (error == 0) return socket;
    if (error == EADDRINUSE) break;
  }
  if (in_use != nullptr) *in_use = error == EADDRINUSE;
  fail("cannot listen", error);
}

Socket listen_at(const std::string& address, int port, bool* in_use) {
  Socket socket;
  const int error = listen_at_numeric(address, port, socket);
  if (error == 0) return socket;
  if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) return listen_on(port, in_use);
  if (in_use != nullptr) *in_use = error == EADDRINUSE;
  fail("cannot listen", error);
}

Socket listen_only_at(const std::string& address, int port) {
  Socket socket;
  const int error = listen_at_numeric(address, port, socket);
  if (error != 0) fail("cannot listen", error);
  return socket;
}

std::string resolve_first(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  return numeric_address(*found->ai_addr, found->ai_addrlen);
}

int port_of(const Socket& listener) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  getsockname(listener.descriptor(), reinterpret_cast<sockaddr*>(&storage), &length);
  return ntohs(storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

Socket accept_from(const Socket& listener) {
  Socket socket(::accept4(listener.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  // Other errors of accept() are connections that failed before they were taken.
  if (!socket.is_open() && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
    fail("cannot accept a connection", errno);
  if (socket.is_open()) tune(socket);
  return socket;
}

Socket connect_to(const std::string& host, int port, const Deadline& deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0)
    throw SocketError(fmt::format("cannot resolve '{}': {}", host, gai_strerror(code)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    Socket socket = new_socket(address->ai_family);
    if (!socket.is_open()) continue;
    error = connect_one(socket, *address, deadline);
    if (error == 0 && is_self_connection(socket)) error = ECONNREFUSED;
    if (error != 0) continue;
    tune(socket);
    return socket;
  }
  fail("cannot connect", error);
}

std::string numeric_address(const sockaddr& address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  getnameinfo(&address, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  constexpr std::string_view kMapped = "::ffff:";  // an IPv4 address in an IPv6 socket
  const std::string_view full = text;
  return std::string(full.starts_with(kMapped) ? full.substr(kMapped.size()) : full);
}

std::string peer_address(const Socket& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (getpeername(socket.descriptor(), reinterpret_cast<sockaddr*>(&storage), &length) != 0)
    fail("the other end is gone", errno);
  return numeric_address(reinterpret_cast<const sockaddr&>(storage), length);
}

std::string own_address(const Socket& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&storage), &length) != 0)
    fail("no address", errno);
  return numeric_address(reinterpret_cast<const sockaddr&>(storage), length);
}

bool is_loopback(std::string_view address) {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

std::string endpoint_text(const std::string& address, int port) {
  return address.find(':') == std::string::npos ? fmt::format("{}:{}", address, port)
                                                : fmt::format("[{}]:{}", address, port);
}

void wait_for(const Socket& socket, short events, const Deadline& deadline) {
  while (true) {
    pollfd entry{socket.descriptor(), events, 0};
    const int ready = poll(&entry, 1, deadline.poll_ms());
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) fail("poll", errno);
    if (deadline.passed()) throw SocketError("no answer in time");
  }
}

void send_all(const Socket& socket, const void* data, size_t bytes, const Deadline& deadline) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(socket.descriptor(), next, bytes, MSG_NOSIGNAL);
    if (sent >= 0) {
      next += sent;
      bytes -= static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EINTR) {
      wait_for(socket, POLLOUT, deadline);
    } else {
      fail("cannot send", errno);
    }
  }
}

void receive_all(const Socket& socket, void* data, size_t bytes, const Deadline& deadline) {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t received = ::recv(socket.descriptor(), next, bytes, 0);
    if (received > 0) {
      next += received;
      bytes -= static_cast<size_t>(received);
    } else if (received == 0) {
      throw SocketError("the connection was closed");
    } else if (errno == EAGAIN || errno == EINTR) {
      wait_for(socket, POLLIN, deadline);
    } else {
      fail("cannot receive", errno);
    }
  }
}

}  // namespace lockstep::collectives
