#include "launcher/run/page_server.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "runtime/base/time.h"

namespace lockstep::launcher {
namespace {

constexpr size_t kMaxRequestBytes = 8192;
constexpr size_t kMaxClients = 16;
constexpr double kPatienceSeconds = 5;
constexpr int kPauseMs = 100;  // if the process has no descriptor for a client

std::string answer(std::string_view status,
                   std::string_view type,
                   const std::string& body,
                   bool with_body = true) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      status,
      type,
      body.size(),
      with_body ? body : "");
}

std::string refusal(std::string_view status) {
  return answer(status, "text/plain; charset=utf-8", fmt::format("{}; try GET /metrics\n", status));
}

}  // namespace

PageServer::PageServer(const std::string& address, int port, std::function<std::string()> page)
    : page_(std::move(page)),
      listener_(collectives::listen_only_at(address, port)),
      end_(::eventfd(0, EFD_CLOEXEC)),
      thread_([this] { serve(); }) {}

PageServer::~PageServer() {
  const uint64_t one = 1;
  while (::write(end_.fd, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  thread_.join();
}

void PageServer::serve() {
  while (true) {
    std::vector<pollfd> entries = {{end_.fd, POLLIN, 0}, {listener_.descriptor(), POLLIN, 0}};
    int wait_ms = -1;
    for (const Client& client : clients_) {
      const bool reads = client.answer.empty();
      entries.push_back({client.socket.descriptor(), reads ? short{POLLIN} : short{POLLOUT}, 0});
      const int left_ms = client.deadline.poll_ms();
      wait_ms = wait_ms < 0 ? left_ms : std::min(wait_ms, left_ms);
    }
    ::poll(entries.data(), entries.size(), wait_ms);
    if (entries[0].revents != 0) return;
    std::vector<Client> kept;
    for (size_t i = 0; i < clients_.size(); ++i) {
      const bool ready = entries[i + 2].revents != 0;
      if (ready ? advance(clients_[i]) : !clients_[i].deadline.passed())
        kept.push_back(std::move(clients_[i]));
    }
    clients_ = std::move(kept);
    if (entries[1].revents != 0) accept_client();
  }
}

void PageServer::accept_client() {
  try {
    collectives::Socket socket = collectives::accept_from(listener_);
    if (!socket.is_open()) return;
    if (clients_.size() == kMaxClients) clients_.erase(clients_.begin());
    clients_.push_back({std::move(socket), collectives::Deadline(kPatienceSeconds)});
  } catch (const collectives::SocketError&) {  // no descriptor is free
    ::poll(nullptr, 0, kPauseMs);
  }
}

// Reads or writes what is possible now. Returns whether the connection stays open.
bool PageServer::advance(Client& client) const {
  const int socket = client.socket.descriptor();
  if (client.answer.empty()) {
    char buffer[1024];
    const ssize_t got = ::recv(socket, buffer, sizeof(buffer), 0);
    if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
    client.request.append(buffer, static_cast<size_t>(got));
    if (client.request.size() > kMaxRequestBytes)
      client.answer = refusal("431 Request Header Fields Too Large");
    else if (client.request.find("\r\n\r\n") != std::string::npos)
      client.answer = answer_to(client.request);
    return !client.deadline.passed();
  }
  const ssize_t sent = ::send(
      socket, client.answer.data() + client.sent, client.answer.size() - client.sent, MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  client.sent += static_cast<size_t>(sent);
  return client.sent < client.answer.size() && !client.deadline.passed();
}

// `request` has a complete header, of which only the first line counts: "GET /metrics HTTP/1.1".
std::string PageServer::answer_to(const std::string& request) const {
  const std::string_view line = std::string_view(request).substr(0, request.find("\r\n"));
  const size_t method_end = line.find(' ');
  const size_t path_end = line.find(' ', std::min(method_end, line.size() - 1) + 1);
  if (method_end == std::string_view::npos || path_end == std::string_view::npos ||
      !line.substr(path_end + 1).starts_with("HTTP/1."))
    return refusal("400 Bad Request");
  const std::string_view method = line.substr(0, method_end);
  const std::string_view path = line.substr(method_end + 1, path_end - method_end - 1);
  if (method != "GET" && method != "HEAD") return refusal("405 Method Not Allowed");
  if (path.substr(0, path.find('?')) != "/metrics") return refusal("404 Not Found");
  return answer(
      "200 OK", "text/plain; version=0.0.4; charset=utf-8", page_(), /*with_body=*/method == "GET");
}

}  // namespace lockstep::launcher
